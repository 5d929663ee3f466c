"""Writes the stubs (`__init__.pyi`) of the package and its rooms, which type checkers and editors read."""

from pathlib import Path

from transformer.names import NAMES, rooms


def stub(prefix: str = "") -> str:
    """The text of a package's `__init__.pyi`."""
    lines = ["# Written by `python -m transformer.testing.stubs`."]
    lines += [f"from transformer{prefix and '.'}{prefix} import {one} as {one}" for one in sorted(rooms(prefix))]
    for module, names in sorted(NAMES.items()):
        if not prefix or f"{module}.".startswith(f"{prefix}."):
            lines += [f"from transformer.{module} import {name} as {name}" for name in sorted(names.split())]
    return "\n".join(lines) + "\n"


def stubs() -> dict[Path, str]:
    """The stub of every package with public names."""
    folders = {""} | {".".join(module.split(".")[:n]) for module in NAMES for n in range(1, module.count(".") + 1)}
    root = Path(__file__).parents[1]
    return {root.joinpath(*folder.split(".")) / "__init__.pyi": stub(folder) for folder in sorted(folders)}


if __name__ == "__main__":
    for path, text in stubs().items():
        path.write_text(text)
