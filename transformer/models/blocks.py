"""Layouts of a block: its sublayers, and which of them share a residual connection."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from flax import nnx

from transformer.core.checks import wrong_kind
from transformer.core.errors import ConfigError, nearest
from transformer.core.values import Variant
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.mixers.mixer import Mixer
from transformer.mixers.recurrent.mamba2 import Mamba2
from transformer.residuals.residual import Residual

if TYPE_CHECKING:
    from transformer.models.config import ModelConfig


class Sublayer(NamedTuple):
    """A part of a block."""

    choice: str | Mixer | FeedForward
    """The field of the model that says what it is, `mixer` or `feed_forward`, or a value of its own."""
    factor: float = 1.0
    """Factor on what it adds to the stream."""
    name: str | None = None
    """Name of its parameters and activations; None: as what it is says."""


class ResolvedSublayer(NamedTuple):
    """A sublayer of a block of some model."""

    name: str
    value: Mixer | FeedForward
    layer: Callable[..., nnx.Module]
    """Builds its module for a model and a `key`."""
    factor: float
    residual: Residual
    """How it is connected to the stream."""


MIXER, FEED_FORWARD = Sublayer("mixer"), Sublayer("feed_forward")


class BlockLayout(Variant):
    """The sublayers of a block, in order."""

    connections: ClassVar[tuple[tuple[Sublayer, ...], ...]] = ()
    """Residual connections; the sublayers of one read the same input, and their outputs are summed."""
    own_norms: ClassVar[bool] = False
    """Whether each sublayer of a connection has its own norm of the input."""

    def alone(self) -> "BlockLayout":
        """The layout of a block that takes over nothing from earlier layers (`Mixer.alone`)."""
        return self

    def of(self, model: "ModelConfig") -> tuple[tuple[ResolvedSublayer, ...], ...]:
        """The connections of a model, without sublayers that it does not have.

        Raises:
          ConfigError: two sublayers have one name, by which parameters and memories are kept.
        """
        made = tuple(tuple(_resolved(sublayer, model) for sublayer in connection) for connection in self.connections)
        there = [tuple(one for one in connection if one is not None) for connection in made]
        names = [one.name for connection in there for one in connection]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ConfigError(
                f"model.block: {self} has a second sublayer {twice!r} beside the model's own; use another kind"
            )
        return tuple(connection for connection in there if connection)


def _resolved(sublayer: Sublayer, model: "ModelConfig") -> ResolvedSublayer | None:
    if not isinstance(sublayer, Sublayer):
        raise wrong_kind(sublayer, Sublayer, "block: a part of a connection")
    if isinstance(sublayer.choice, str) and sublayer.choice not in (known := ("mixer", "feed_forward")):
        raise ConfigError(f"block: a model has no sublayer {sublayer.choice!r}{nearest(sublayer.choice, known)}")
    value = getattr(model, sublayer.choice) if isinstance(sublayer.choice, str) else sublayer.choice
    if value is None:
        return None
    name = sublayer.name or value.sublayer or value.name
    residual = value.connection(model) if isinstance(value, FeedForward) else model.residual
    return ResolvedSublayer(name, value, value.build, sublayer.factor, residual)


@dataclass(frozen=True)
class Sequential(BlockLayout):
    """The mixer, then feed-forward (Vaswani et al. 2017)."""

    connections = ((MIXER,), (FEED_FORWARD,))


@dataclass(frozen=True)
class SideBySide(BlockLayout):
    """The model's mixer and another one of the same input, their outputs summed, then feed-forward.

    Attention beside a state space (Falcon-H1, 2025; Hymba, Dong X. et al. 2024, which also normalizes both outputs).
    """

    name = "side_by_side"
    mixer: Mixer = Mamba2()
    """The other one."""

    def alone(self):
        return replace(self, mixer=self.mixer.alone())

    @property
    def connections(self):  # pyright: ignore[reportIncompatibleVariableOverride]
        return ((MIXER, Sublayer(self.mixer)), (FEED_FORWARD,))


@dataclass(frozen=True)
class Parallel(BlockLayout):
    """Mixer and feed-forward of the same input (GPT-J, Wang and Komatsuzaki 2021; PaLM 2022, section 2)."""

    connections = ((MIXER, FEED_FORWARD),)


@dataclass(frozen=True)
class ParallelNorms(Parallel):
    """`parallel` with a norm of the input for each sublayer (GPT-NeoX, Black et al. 2022, section 2.1)."""

    name = "parallel_norms"
    own_norms = True


@dataclass(frozen=True)
class Macaron(BlockLayout):
    """Half a feed-forward step, the mixer, half a feed-forward step (Lu et al. 2019, equation 10)."""

    connections = (
        (Sublayer("feed_forward", 0.5, "feed_forward_before"),),
        (MIXER,),
        (Sublayer("feed_forward", 0.5),),
    )
