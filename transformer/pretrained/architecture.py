"""A published architecture: a config, the fields of its config.json, and the names of its tensors."""

import contextlib
import dataclasses
import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from transformer.core.changes import replace
from transformer.core.errors import ConfigError
from transformer.models.config import ModelConfig
from transformer.pretrained.fields import NEUTRAL, UNUSED, Field, Json, value_at

PRACTICE = (
    "mixer.dropout",
    "mixer.backend",
    "feed_forward.dropout",
    "embedding.initializer",
    "initializer",
    "dropout",
    "stochastic_depth",
    "scale_residual_init",
    "scale_init_by_depth",
    "layers",
    "dtype",
)
"""Paths of our config that decide how a model is computed or trained, not which function it computes."""


@dataclass(frozen=True)
class Row:
    """A stored tensor and those of our parameters that it holds."""

    ours: str | tuple[str, ...]
    """Paths in our tree of parameters; those below `blocks` belong to one layer."""
    theirs: str
    """Name of the tensor; `{layer}` and `{expert}` are numbers from 0."""
    layout: str = ""
    """How its axes map to ours (`transformer.pretrained.layouts`); empty: unchanged."""
    skip: int = 0
    """Number of rows at its beginning that are not read; they are written as zeros."""
    also: tuple[str, ...] = ()
    """Other names under which a file may hold the same tensor again."""
    optional: bool = False
    """Whether a file may lack it, which stands for zeros."""
    when: Callable[[ModelConfig], bool] = lambda config: True
    """Whether a config has it under this name."""


@dataclass(frozen=True)
class Architecture:
    """A class of published models; `transformer.pretrained.llama` is a complete example."""

    names: tuple[str, ...]
    """Names under `architectures` in config.json; the first one is written."""
    model_type: str
    base: ModelConfig
    """The config that all its models have in common."""
    fields: tuple[Field, ...]
    """Fields of config.json; all others have to be neutral."""
    neutral: str = r"(?!)"
    """Pattern of its fields that no logit depends on."""
    rows: tuple[Row, ...] = ()
    """Its tensors; those whose parameters a config does not have are not in its file."""
    renames: tuple[tuple[str, str], ...] = ()
    """Pairs (pattern, replacement) for tensors that have other names in some files."""
    ignored: str = r"(?!)"
    """Pattern of tensors that a file may have and no logit depends on."""

    def read_config(self, fields: Json) -> ModelConfig:
        """Our config of a config.json.

        Raises:
          ConfigError: a field is not known here, or its value is not supported.
        """
        known = {name for field in self.fields for name in field.theirs}
        neutral, unused = re.compile(f"{NEUTRAL}|{self.neutral}"), re.compile(UNUSED)
        left = [name for name in fields if name not in known and not neutral.fullmatch(name)]
        if unknown := sorted(name for name in left if fields[name] or not unused.fullmatch(name)):
            near = [one for name in unknown for one in difflib.get_close_matches(name, known, n=1, cutoff=0.9)]
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"not supported: {', '.join(unknown)}{hint}")
        changes: dict[str, Any] = {}
        for field in self.fields:
            try:
                changes |= field.read(fields)
            except ConfigError:
                raise
            except KeyError as error:
                raise ConfigError(f"{', '.join(field.theirs)}: {error} is missing in what is there") from None
            except (TypeError, ValueError, AttributeError, ArithmeticError, IndexError):  # a value of another kind
                found = {name: fields.get(name) for name in field.theirs}
                raise ConfigError(f"{', '.join(field.theirs)}: {found!r} cannot be read") from None
        return replace(self.base, changes)

    def write_config(self, config: ModelConfig) -> dict[str, Any]:
        """The fields of config.json for one of our configs."""
        written = {name: value for field in self.fields for name, value in field.write(config).items()}
        # The usual ids of a class are of another vocabulary, and may be beyond this one.
        names = ("bos_token_id", "eos_token_id", "pad_token_id")
        special = dict.fromkeys(names) if type(config) is ModelConfig and config.causal else {}
        return {"architectures": [self.names[0]], "model_type": self.model_type, **special, **written}

    def differences(self, config: ModelConfig) -> list[str]:
        """The dotted paths at which a config is not of this architecture, or what else keeps it from that."""
        if type(config) is not type(self.base):
            return [type(config).__name__]
        written: dict[str, Any] = {}
        changes: dict[str, Any] = {}
        refused: list[str] = []
        for field in self.fields:
            # Another variant lacks this number, or has one that nothing is divided by.
            with contextlib.suppress(ConfigError, AttributeError, TypeError, ArithmeticError):
                written |= field.write(config)
        for field in self.fields:
            try:
                changes |= field.read(written)
            except ConfigError as error:
                refused.append(str(error))
        try:
            back = replace(self.base, changes)
        except ConfigError as error:
            return [str(error)]
        differing = [path for field in dataclasses.fields(config) for path in _differing(back, config, field.name)]
        return differing or refused


def _differing(one: ModelConfig, other: ModelConfig, path: str) -> Iterator[str]:
    """The paths, at this one and below it, at which two configs say different things."""
    value, another = value_at(one, path), value_at(other, path)
    if path in PRACTICE or value == another:
        return
    if type(value) is type(another) and dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _differing(one, other, f"{path}.{field.name}")
    else:
        yield path


QKV = ("blocks/attention/query", "blocks/attention/key", "blocks/attention/value")
"""The projections that many architectures store as one."""


def dense(ours: str, theirs: str) -> Iterator[Row]:
    """A linear layer whose kernel is stored (out, in)."""
    yield Row(f"{ours}/kernel", f"{theirs}.weight", "F D -> D F")
    yield Row(f"{ours}/bias", f"{theirs}.bias")


def joined(ours: Iterable[str], theirs: str, along: str = "[F]") -> Iterator[Row]:
    """Several linear layers stored as one (out, in), along this axis of outputs: one after the other, or in turns."""
    names, plain = tuple(ours), along.replace("[", "").replace("]", "")
    yield Row(tuple(f"{name}/kernel" for name in names), f"{theirs}.weight", f"{along} D -> D {plain}")
    yield Row(tuple(f"{name}/bias" for name in names), f"{theirs}.bias", f"{along} -> {plain}")


def norm(ours: str, theirs: str) -> Iterator[Row]:
    """The gain of a norm, and its bias."""
    yield Row(f"{ours}/params/scale", f"{theirs}.weight")
    yield Row(f"{ours}/params/bias", f"{theirs}.bias")


def experts(theirs: str, gate: str, up: str, down: str) -> Iterator[Row]:
    """A router and gated experts, whose three matrices are named so."""
    yield Row("blocks/feed_forward/router/kernel", f"{theirs}.gate.weight", "E D -> D E")
    branches = {"branches/0": gate, "branches/1": up, "out": down}
    for ours, name in branches.items():
        yield Row(f"blocks/feed_forward/{ours}", f"{theirs}.experts.{{expert}}.{name}.weight", "F D -> D F")
