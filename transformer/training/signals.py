"""SIGTERM and Ctrl-C: the first signal asks the loop to save and stop, a later one stops at once."""

import ctypes
import os
import signal
import sys
import threading
import time

from transformer.core.errors import OneLine

EXIT_INTERRUPTED = 75
"""Exit code of a run that was asked to stop and saved: the same command with --resume continues."""
TWICE = 0.5
"""Seconds in which a signal that comes again is the same request, as `timeout` signals a process and then its group."""
_PR_SET_PDEATHSIG = 1


class Interrupted(OneLine):
    """The run was asked to stop; its state is saved."""


class StopRequest:
    """Within `with`, `requested` becomes True at the first signal; one more, `TWICE` later, kills the process.

    One around another learns of it too: a study is asked to stop with the run in it, even if that had just ended.
    """

    def __init__(self):
        self.requested = False
        self._asked = 0.0
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
        if not self.requested:
            self._ask(number)
        elif time.monotonic() - self._asked > TWICE:
            os._exit(128 + number)

    def _ask(self, number):
        self.requested, self._asked = True, time.monotonic()
        outer = getattr(self._previous[number], "__self__", None)
        if isinstance(outer, StopRequest):
            outer._ask(number)


def die_with(parent: int) -> None:
    """Have the kernel kill this process as soon as the one that started it ends (Linux; elsewhere nothing).

    Otherwise the training of a killed worker would continue, and the next worker would train the same cell.
    """
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the kernel was told
        os._exit(128 + signal.SIGKILL)
