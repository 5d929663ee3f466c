"""The pictures of docs/inside.md, as notebook 7 draws them.

python notebooks/pictures.py
"""

import runpy
from pathlib import Path

HERE = Path(__file__).parent
PICTURES = {"rise": "induction_rise.png", "maps": "attention_maps.png", "patching": "patching.png"}


def main() -> None:
    drawn = runpy.run_path(str(HERE / "07_inside_a_trained_model.py"))
    for name, file in PICTURES.items():
        drawn[name].savefig(HERE / file, dpi=100)


if __name__ == "__main__":
    main()
