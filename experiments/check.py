"""Check a choice of your own in every context: `check_variant` of a class, or of a value, in a file or module.

    transformer check my_norms.py:PowerNorm
    transformer check my_norms:PowerNorm 'powernorm(power=3.0)'

The class is used with its defaults, or as a text form says. The models are small; see `transformer.testing.properties`.
Exit codes: 0 it holds everywhere it is not refused, 1 a property does not hold, 2 there is no such class.
"""

import argparse
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from experiments import cli
from transformer.core.errors import ConfigError, nearest
from transformer.core.values import Variant, make


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("place", help="MODULE:CLASS or FILE.py:CLASS")
    parser.add_argument("text", nargs="?", help="its text form; otherwise the class with its defaults")
    arguments = parser.parse_args()
    value = chosen(arguments.place, arguments.text)
    from transformer.testing.check import check_variant  # loaded late: it makes every option of the catalogue

    try:
        checked = check_variant(value)
    except AssertionError as error:
        print(f"{str(error).replace('; ', chr(10) + '  ')}\n{value} does not hold", file=sys.stderr)
        sys.exit(1)
    for context, reason in checked.refused.items():
        print(f"refused in {context}: {reason}")
    print(f"{value}: {len(checked.passed)} properties hold")


def chosen(place: str, text: str | None) -> Variant:
    """The value of a class by its place, with the fields of a text form."""
    where, colon, name = place.rpartition(":")
    if not colon or not where or not name:
        raise ConfigError(f"check: {place!r} is not of the form MODULE:CLASS or FILE.py:CLASS")
    module = loaded(where)
    found: Any = getattr(module, name, None)
    if isinstance(found, type) and issubclass(found, Variant):
        if missing := sorted(getattr(found, "__abstractmethods__", ())):
            raise ConfigError(f"check: {name} has no {', '.join(missing)}")
        value = make(found, {}) if text is None else found.family().parse(text)
        if not isinstance(value, found):
            raise ConfigError(f"check: {text!r} is a {type(value).__name__}, no {name}")
        return value
    if isinstance(found, Variant) and text is None:
        return found
    own = [key for key, each in vars(module).items() if isinstance(each, type) and issubclass(each, Variant)]
    raise ConfigError(f"check: {where} has no variant {name!r}{nearest(name, own) if own else ''}")


def loaded(where: str) -> ModuleType:
    """A module by its name, or the file it is in."""
    sys.path.insert(0, str(Path.cwd()))  # as `python -m` has it
    if not where.endswith(".py"):
        try:
            return importlib.import_module(where)
        except ModuleNotFoundError as error:
            raise ConfigError(f"no module {error.name!r} from {Path.cwd()}") from None
    if not Path(where).is_file():
        raise ConfigError(f"no file {where}")
    spec = importlib.util.spec_from_file_location(Path(where).stem, where)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    cli.main(main)
