"""Measure speed, show it, and keep it in `benchmarks.json`.

    python -m experiments.benchmarks training [--rounds 5] [--also PYTHON] [--peers PYTHON] [--only recipe]

Contestants take turns, round by round; what counts is the ratio within a round, because machines drift. Keep the
machine quiet.
"""

import argparse
import importlib
import json
import subprocess
import sys

from experiments.benchmarks.record import keep, versions

NAMES = ("attention", "decoding", "devices", "gpu", "recurrent", "replicas", "startup", "training")


def versions_of(python: str) -> dict[str, str]:
    """Versions of the libraries that another interpreter has."""
    code = "import json; from experiments.benchmarks.record import versions; print(json.dumps(versions()))"
    return json.loads(subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--also", help="another Python with this package, and another version of JAX")
    parser.add_argument("--peers", default=sys.executable, help="a Python with this package and the extra `parity`")
    parser.add_argument("--only", default="", help="of training, the sizes that begin so; of gpu, the tables")
    arguments = parser.parse_args()
    tables = importlib.import_module(f"experiments.benchmarks.{arguments.name}").measure(arguments)
    for table in tables.values():
        table.show()
    command = f"python -m experiments.benchmarks {arguments.name}"
    found = versions_of(arguments.peers) | versions()
    if arguments.also:
        found["jax of the other Python"] = versions_of(arguments.also)["jax"]
    keep(tables, command, arguments.rounds, found)


if __name__ == "__main__":
    main()
