"""Settings as lines of text."""


def lines(found: dict[str, str]) -> str:
    """One line each, the values below each other."""
    width = max(map(len, found), default=0)
    return "\n".join(f"  {path:{width}}  {text}" for path, text in found.items())
