"""Layouts of a block: its sublayers, and which of them share a residual connection."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from transformer.core.values import Variant


class Sublayer(NamedTuple):
    """A part of a block."""

    name: str
    """Name of its parameters."""
    kind: str
    """Kind of its module: attention, fourier or feed_forward."""
    factor: float = 1.0
    """Factor on what it adds to the stream."""


_ATTENTION, _FEED_FORWARD = Sublayer("attention", "attention"), Sublayer("feed_forward", "feed_forward")


class BlockLayout(Variant):
    """The sublayers of a block, in order."""

    connections: ClassVar[tuple[tuple[Sublayer, ...], ...]] = ()
    """Residual connections; the sublayers of one read the same input, and their outputs are summed."""

    own_norms: ClassVar[bool] = False
    """Whether each sublayer of a connection has its own norm of the input."""
    mixes_tokens: ClassVar[bool] = False
    """Whether a token is mixed with all others, whatever the mask."""

    @property
    def attends(self) -> bool:
        """Whether one of the sublayers is attention."""
        return any(sublayer.kind == "attention" for sublayers in self.connections for sublayer in sublayers)


@dataclass(frozen=True)
class Sequential(BlockLayout):
    """Attention, then feed-forward (Vaswani et al. 2017)."""

    connections = ((_ATTENTION,), (_FEED_FORWARD,))


@dataclass(frozen=True)
class Parallel(BlockLayout):
    """Attention and feed-forward of the same input (GPT-J, Wang and Komatsuzaki 2021; PaLM 2022, section 2)."""

    connections = ((_ATTENTION, _FEED_FORWARD),)


@dataclass(frozen=True)
class ParallelNorms(Parallel):
    """`parallel` with a norm of the input for each sublayer (GPT-NeoX, Black et al. 2022, section 2.1)."""

    name = "parallel_norms"
    own_norms = True


@dataclass(frozen=True)
class Macaron(BlockLayout):
    """Half a feed-forward step, attention, half a feed-forward step (Lu et al. 2019, equation 10)."""

    connections = (
        (Sublayer("feed_forward_before", "feed_forward", 0.5),),
        (_ATTENTION,),
        (Sublayer("feed_forward", "feed_forward", 0.5),),
    )


@dataclass(frozen=True)
class Fourier(BlockLayout):
    """A Fourier transform over tokens and features in place of attention (FNet, Lee-Thorp et al. 2021)."""

    connections = ((Sublayer("fourier", "fourier"),), (_FEED_FORWARD,))
    mixes_tokens = True


@dataclass(frozen=True)
class AttentionOnly(BlockLayout):
    """No feed-forward sublayer (Elhage et al. 2021)."""

    name = "attention_only"
    connections = ((_ATTENTION,),)


@dataclass(frozen=True)
class FeedForwardOnly(BlockLayout):
    """No attention: tokens do not see each other."""

    name = "feed_forward_only"
    connections = ((_FEED_FORWARD,),)
