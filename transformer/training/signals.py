"""SIGTERM and Ctrl-C: the first asks the loop to save and stop, the second stops at once."""

import os
import signal
import threading

EXIT_INTERRUPTED = 75
"""Exit code of a run that was asked to stop and saved: the same command with --resume goes on."""


class Interrupted(Exception):
    """The run was asked to stop; its state is saved."""


class StopRequest:
    """Within `with`, `requested` becomes True at the first signal; the second one kills the process."""

    def __init__(self):
        self.requested = False
        self._previous: dict[int, object] = {}

    def __enter__(self) -> "StopRequest":
        # Python delivers signals to the main thread only; elsewhere the caller keeps its own handlers.
        if threading.current_thread() is threading.main_thread():
            self._previous = {s: signal.signal(s, self._handle) for s in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *_):
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # pyright: ignore[reportArgumentType]

    def _handle(self, number, _frame):
        if self.requested:
            os._exit(128 + number)
        self.requested = True
