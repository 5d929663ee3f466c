"""Published effects: a file for each, with a `CLAIM`."""
