"""A choice is a value: frozen dataclasses with a text form and a JSON form.

A *family* (`Norm`, `Position`, …) is a direct subclass of `Variant`; a variant is a frozen dataclass
below a family. There is no registry: every subclass that is defined, shipped or written in a
notebook, is known to its family by its name.
"""

import abc
import dataclasses
import functools
import importlib
import inspect
import itertools
import operator
import pkgutil
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from transformer.core.documentation import with_fields
from transformer.core.errors import ConfigError, instead
from transformer.core.notebook import without_defaults
from transformer.core.sources import PACKAGE, source_of

T = TypeVar("T", bound="Variant")
_DEFINITIONS = itertools.count()
NONE = "none"
"""The text form of None: nothing is chosen."""


class Choices(abc.ABCMeta):
    """The metaclass of variants and configs: an unknown field is a `ConfigError` that names the nearest one."""

    if not TYPE_CHECKING:  # type checkers see the fields

        def __call__(cls, *values, **fields):
            try:
                return super().__call__(*values, **fields)
            except TypeError:
                if set(fields) & set(vars(cls).get("__annotations__", ())) and "__dataclass_fields__" not in vars(cls):
                    line = f"{cls.__name__} is no dataclass; write @dataclass(frozen=True) above it"
                    raise ConfigError(line) from None
                taken = inspect.signature(cls).parameters.values()
                known = {parameter.name: parameter.default for parameter in taken}
                open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken)
                if not open_ended and (unknown := [name for name in fields if name not in known]):
                    raise ConfigError(f"{cls.__name__}: no field {unknown[0]!r}{instead(unknown[0], known)}") from None
                raise

        @property
        def __signature__(cls):  # that of the fields, which notebooks and `help` show
            return inspect.signature(functools.partial(cls.__init__, None))

        @property
        def __doc__(cls):
            own = type.__dict__["__doc__"].__get__(cls)
            made = "__match_args__" in cls.__dict__  # a dataclass that is being made asks as well
            return with_fields(own, cls) if made else own

        @__doc__.setter
        def __doc__(cls, text):
            type.__dict__["__doc__"].__set__(cls, text)


@dataclasses.dataclass(frozen=True)
class Variant(metaclass=Choices):
    """Base of all swappable choices."""

    begins_as: ClassVar[str | None] = None
    """The text form of a simpler variant that it equals at its initial parameters, where the paper says so."""
    name: ClassVar[str]
    """The name in the text form: the class name in lower case unless the class sets it."""
    _defined: ClassVar[int]
    """A number that grows with every definition."""
    _source: ClassVar[str] = ""

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        cls._defined = next(_DEFINITIONS)
        cls._source = source_of(cls)  # now: a process that the class is sent to may not have its file
        cls.__repr__ = cls.__repr__  # a dataclass makes none where the class has one
        if "name" not in cls.__dict__:
            cls.name = cls.__name__.lower()
        _check_name(cls)

    __repr__ = without_defaults

    def __str__(self) -> str:
        return to_text(self)

    def recipe(self, d_model: int) -> dict[str, Any]:
        """Changes to a run that its paper makes together with it, by dotted path; studies make them too.

        They are initial values and scales without which it is not what the paper trains.
        """
        return {}

    @classmethod
    def family(cls) -> type["Variant"]:
        """The direct subclass of `Variant` that this class belongs to."""
        return next(base for base in reversed(cls.__mro__) if issubclass(base, Variant) and base is not Variant)

    @classmethod
    def variants(cls) -> dict[str, type[Self]]:
        """All variants of this class by name; of two with the same name, the one defined last."""
        load_room(cls.family().__module__.rpartition(".")[0])
        return {sub.name: sub for sub in sorted(_concrete(cls), key=lambda sub: sub._defined)}

    @classmethod
    def parse(cls, text: str, where: str = "") -> Self:
        """The value of a text form such as `rope(base=500000)`; errors name the field `where` that it is for.

        Raises:
          ConfigError: the syntax, the name, an argument or its type is wrong.
        """
        from transformer.core.text import from_text  # text forms are read by what knows all values

        return from_text(text, cls, where)


def _check_name(cls: type[Variant]) -> None:
    """Raise `ConfigError` where a class of one's own has the name of a shipped one, and so its text form."""
    if cls.__module__.partition(".")[0] == PACKAGE or (family := cls.family()) is cls:
        return
    load_room(family.__module__.rpartition(".")[0])
    for other in _concrete(family):
        if other.name == cls.name and other.__module__.partition(".")[0] == PACKAGE:
            raise ConfigError(
                f"class {cls.__qualname__}: {other.__module__} has a {family.__name__} of the name {cls.name!r}; "
                f"set another one in the class, such as name = 'own_{cls.name}'"
            )


def of_field(field: str, name: str) -> Any:
    """A property that delegates to the variant in a field: `x.name` is `x.field.name`.

    Args:
      field: holds the other variant.
      name: of the attribute or method.
    """
    return property(operator.attrgetter(f"{field}.{name}"))


@functools.cache
def load_room(package: str) -> None:
    """Import all modules of a room of this package, so that all that is defined there is known."""
    if package.startswith(f"{PACKAGE}."):
        for found in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if not found.name.endswith("__main__"):
                importlib.import_module(found.name)


def _concrete(cls: type[T]) -> list[type[T]]:
    """The variants among a class and its subclasses at any depth."""
    own = [cls] if "__dataclass_params__" in cls.__dict__ and not inspect.isabstract(cls) else []
    own = [] if cls is Variant else own
    return own + [deeper for sub in cls.__subclasses__() for deeper in _concrete(sub)]


def make(cls, values: dict[str, Any]) -> Any:
    """`cls(**values)`, with a missing or rejected value as a `ConfigError`."""
    missing = [
        f.name
        for f in dataclasses.fields(cls)
        if f.name not in values and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise ConfigError(f"{getattr(cls, 'name', cls.__name__)}: missing {', '.join(missing)}")
    return cls(**values)


def to_text(value: Any) -> str:
    """The shortest text that parses back to the value: fields at their default are left out."""
    if isinstance(value, tuple) and any(isinstance(item, Variant) for item in value):
        return "[" + ", ".join(map(to_text, value)) + "]"
    if not isinstance(value, Variant):
        return NONE if value is None else repr(value)
    changed = [
        f"{f.name}={to_text(getattr(value, f.name))}"
        for f in dataclasses.fields(value)
        if getattr(value, f.name) != f.default
    ]
    return f"{value.name}({', '.join(changed)})" if changed else value.name
