"""How a flag is read and shown, by the type of its field: variants in their text form, `none` for what may be None."""

from types import NoneType
from typing import Literal, get_args, get_origin

from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from transformer.core.checks import allows_none, item_of, variant_of
from transformer.core.text import field_from_text
from transformer.core.values import NONE, Variant, to_text

REGISTRY = ConstructorRegistry()


@REGISTRY.primitive_rule
def _variant_rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """Reads a variant as one word, its text form, or as `none` where it may be None."""
    family, optional = variant_of(info.type), allows_none(info.type)
    if family is None:
        return None

    def parse(words: list[str]) -> Variant | None:
        return None if optional and words[0] == NONE else family.parse(words[0])

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="{" + ",".join([*sorted(family.variants()), *[NONE] * optional]) + "}",
        instance_from_str=parse,
        is_instance=lambda value: isinstance(value, family) or (optional and value is None),
        str_from_instance=lambda value: [to_text(value)],
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
        metavar=f"{kind.__name__.upper()}|{NONE}",
        instance_from_str=lambda words: None if words[0].lower() == NONE else kind(words[0]),
        is_instance=lambda value: value is None or type(value) is kind,
        str_from_instance=lambda value: [NONE if value is None else str(value)],
    )


@REGISTRY.primitive_rule
def _optional_choice_rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """Reads a truth value, or one of several words, that may be None, which is written `none`."""
    kinds = [kind for kind in get_args(info.type) if kind is not NoneType]
    if len(kinds) != 1 or not allows_none(info.type):
        return None
    values = (True, False) if kinds[0] is bool else get_args(kinds[0]) if get_origin(kinds[0]) is Literal else ()
    if not values:
        return None
    known = {str(value): value for value in values} | {NONE: None}
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="{" + ",".join(known) + "}",
        choices=tuple(known),
        instance_from_str=lambda words: known[words[0]],
        is_instance=lambda value: value in known.values(),
        str_from_instance=lambda value: [NONE if value is None else str(value)],
    )


@REGISTRY.primitive_rule
def _variants_rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """Reads several variants as one word each, or all of them as one word in brackets."""
    family = item_of(info.type)
    if family is None:
        return None

    def parse(words: list[str]) -> tuple[Variant, ...]:
        if len(words) == 1 and words[0].startswith(("[", "(")):
            return field_from_text(words[0], info.type, family.__name__.lower())
        return tuple(family.parse(word) for word in words)

    return PrimitiveConstructorSpec(
        nargs="*",
        metavar="[{" + ",".join(sorted(family.variants())) + "} ...]",
        instance_from_str=parse,
        is_instance=lambda value: isinstance(value, tuple) and all(isinstance(item, family) for item in value),
        str_from_instance=lambda value: [to_text(item) for item in value],
    )
