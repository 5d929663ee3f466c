"""Command lines for frozen dataclasses: variants in their text form, errors as one line with exit code 2."""

import contextlib
import dataclasses
import io
import sys
from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any, TypeVar, get_args

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from transformer.core.values import ConfigError, Variant, item_of, nearest, to_text, variant_of
from transformer.training.checkpoint import CheckpointError
from transformer.training.disk import EXIT_UNWRITABLE, WriteError
from transformer.training.signals import EXIT_INTERRUPTED, Interrupted

T = TypeVar("T")
REGISTRY = ConstructorRegistry()
UNSET = "unset"


@REGISTRY.primitive_rule
def _variant_rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """Reads a variant as one word, its text form, or as `unset` where it may be None."""
    family, optional = variant_of(info.type), NoneType in get_args(info.type)
    if family is None:
        return None

    def parse(words: list[str]) -> Variant | None:
        return None if optional and words[0] == UNSET else family.parse(words[0])

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="{" + ",".join([*sorted(family.variants()), *[UNSET] * optional]) + "}",
        instance_from_str=parse,
        is_instance=lambda value: isinstance(value, family) or (optional and value is None),
        str_from_instance=lambda value: [UNSET if value is None else to_text(value)],
    )


@REGISTRY.primitive_rule
def _optional_rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """Reads a number or a text that may be None, which is written `none`."""
    options = get_args(info.type)
    kinds = [kind for kind in (int, float, str) if set(options) == {kind, NoneType}]
    if not kinds:
        return None
    kind = kinds[0]
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=f"{kind.__name__.upper()}|none",
        instance_from_str=lambda words: None if words[0].lower() == "none" else kind(words[0]),
        is_instance=lambda value: value is None or type(value) is kind,
        str_from_instance=lambda value: ["none" if value is None else str(value)],
    )


@REGISTRY.primitive_rule
def _variants_rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """Reads several variants as one word each."""
    family = item_of(info.type)
    if family is None:
        return None
    return PrimitiveConstructorSpec(
        nargs="*",
        metavar="[{" + ",".join(sorted(family.variants())) + "} ...]",
        instance_from_str=lambda words: tuple(family.parse(word) for word in words),
        is_instance=lambda value: isinstance(value, tuple) and all(isinstance(item, family) for item in value),
        str_from_instance=lambda value: [to_text(item) for item in value],
    )


def parse(cls: type[T], presets: Mapping[str, T], arguments: list[str] | None = None, description: str = "") -> T:
    """The command line as a value of `cls`; its first word may name a preset to start from.

    Raises:
      ConfigError: whatever is wrong with it, in one line.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    default = next(iter(presets.values()))
    if arguments and not arguments[0].startswith("-"):
        name = arguments.pop(0)
        if name not in presets:
            raise ConfigError(f"unknown preset {name!r}{nearest(name, presets)}")
        default = presets[name]
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(
                cls,
                args=arguments,
                default=default,
                description=f"{description}\n\nA preset may come first: {', '.join(presets)}.",
                registry=REGISTRY,
            )
    except SystemExit as stop:
        if stop.code == 0:
            raise
        raise ConfigError(_one_line(said.getvalue())) from None


def _one_line(box: str) -> str:
    """The message in the box that tyro draws, without its frame and the hint at --help."""
    lines = [line.strip("│ ").strip() for line in box.splitlines() if line.startswith("│")]
    text = " ".join("" if set(line) == {"─"} else line for line in lines)
    return text.partition("For full helptext")[0].partition("Argument helptext")[0].strip()


def main(run: Callable[[], None]) -> None:
    """Call `run`; errors are one line. Exit codes: 2 for a wrong choice, 74 for a full disk, 75 for an interruption."""
    try:
        run()
    except (ConfigError, CheckpointError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except WriteError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(EXIT_UNWRITABLE)
    except Interrupted as stop:
        print(stop, file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)


def extend(config: Any, cls: type[T], **more: Any) -> T:
    """A config as a command, which has further fields."""
    return cls(**{f.name: getattr(config, f.name) for f in dataclasses.fields(config)}, **more)


def fields_of(config: Any, cls: type[T]) -> T:
    """The part of a config that belongs to one of its base classes."""
    return cls(**{f.name: getattr(config, f.name) for f in dataclasses.fields(cls)})  # pyright: ignore[reportArgumentType]
