"""Compute one cell of a study in a process of its own: `python -m transformer.study.worker FOLDER`.

Modules outside this package are imported if they are allowed by name: --allow my_variants.

Exit code 0: the result is there; 1: the cell failed, see error.txt in its folder; 75: it was asked to stop,
and the same command continues it.
"""

import argparse
import os
import socket
import sys
from pathlib import Path

from transformer.core import runtime
from transformer.core.errors import ConfigError
from transformer.study import handover
from transformer.study.cell import ERROR
from transformer.training.signals import EXIT_INTERRUPTED, Interrupted, die_with


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m transformer.study.worker", description=__doc__)
    parser.add_argument("folder", type=Path, help="the folder of a cell, prepared by an engine")
    parser.add_argument("--allow", action="append", default=[], metavar="MODULE", help="a module that may be imported")
    parser.add_argument("--parent", type=int, help="id of the process with which this one has to end")
    arguments = parser.parse_args()
    if arguments.parent is not None:
        die_with(arguments.parent)
    runtime.start()
    folder = arguments.folder
    print(f"process {os.getpid()} on {socket.gethostname()} begins", flush=True)
    try:
        error = handover.read(folder, arguments.allow).attempt(wait=True)
    except ConfigError as wrong:
        error = f"ConfigError: {wrong}"
        (folder / ERROR).write_text(error)
    except Interrupted as stop:
        print(stop, flush=True)
        return EXIT_INTERRUPTED
    print(error or f"process {os.getpid()} ends: the result is there", flush=True)
    return 1 if error else 0


if __name__ == "__main__":
    sys.exit(main())
