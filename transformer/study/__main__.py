"""Print the report of a finished study again, or of several with the same arms, whose seeds are pooled.

python -m transformer.study results/norm              prints it, and writes report.html and the others again
python -m transformer.study monday tuesday --out both
"""

import argparse
import sys
from pathlib import Path

from transformer.core.errors import ConfigError
from transformer.study.analyse import read_study


def main() -> None:
    described = argparse.RawDescriptionHelpFormatter
    program = sys.argv[0] if sys.argv[0].startswith("transformer ") else "python -m transformer.study"
    parser = argparse.ArgumentParser(prog=program, description=__doc__, formatter_class=described)
    parser.add_argument("folders", type=Path, nargs="+", help="folders of studies")
    parser.add_argument("--out", type=Path, help="folder to write to; of a single study, its own")
    arguments = parser.parse_args()
    try:
        report = read_study(*arguments.folders)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    report.show()
    out = arguments.out or (arguments.folders[0] if len(arguments.folders) == 1 else None)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        report.write(out)
        print(f"report.html, .md, .json, .csv and .tex and the pictures are in {out}")


if __name__ == "__main__":
    main()
