"""How attention is computed: the same numbers at another cost."""

import abc
from dataclasses import dataclass
from typing import ClassVar

import jax

from transformer.core.values import Variant, check_positive
from transformer.functional.attention import Attended, attention
from transformer.functional.chunked_attention import chunked_attention
from transformer.functional.fused_attention import fused_attention
from transformer.functional.linear_attention import recurrent_attention
from transformer.mixers.attention.normalizers import SoftmaxWeighting, Weighting


class AttentionImplementation(Variant, abc.ABC):
    """The attention function of every layer."""

    forms_weights: ClassVar[bool] = True
    """Whether it forms all scores and weights, so that they can be returned, dropped out, or changed together."""
    changes_scores: ClassVar[bool] = True
    """Whether it can apply a function to every score before the scores become weights."""
    one_size: ClassVar[bool] = False
    """Whether keys and values must have the same size."""
    recurrent: ClassVar[bool] = False
    """Whether it reads from left to right and keeps only a sum over the tokens it has read."""

    def computes(self, weighting: Weighting) -> bool:
        """Whether it can compute this weighting."""
        return True

    @abc.abstractmethod
    def __call__(self, *arrays: jax.Array, own_keys: bool, **how) -> Attended:
        """`transformer.functional.attention.attention(*arrays, **how)`, in this way.

        Args:
          arrays: queries, keys and values.
          own_keys: whether the keys are those of the queries' own tokens, with nothing from a cache, an earlier
            segment or a source.
          how: the keyword arguments of that function.
        """


@dataclass(frozen=True)
class Exact(AttentionImplementation):
    """All scores at once, O(L²) memory."""

    def __call__(self, *arrays, own_keys, **how):
        return attention(*arrays, **how)


@dataclass(frozen=True)
class Chunked(AttentionImplementation):
    """Online softmax over blocks, O(L) memory."""

    block: int = 256
    forms_weights = False

    def __post_init__(self):
        check_positive(self, "block")

    def computes(self, weighting):
        return weighting.online

    def __call__(self, *arrays, own_keys, **how):
        return chunked_attention(*arrays, block=self.block, **how)


@dataclass(frozen=True)
class Fused(AttentionImplementation):
    """Softmax attention by cuDNN's flash kernel on a GPU (Dao et al. 2022), exact elsewhere and where cuDNN cannot.

    cuDNN needs bfloat16 or float16, even lengths, a head size that is a multiple of 8 up to 128, and no positional
    bias; a warning names what it does not support.
    """

    forms_weights = False
    changes_scores = False
    one_size = True

    def computes(self, weighting):
        return isinstance(weighting, SoftmaxWeighting)

    def __call__(self, *arrays, own_keys, **how):
        return fused_attention(*arrays, **how)


@dataclass(frozen=True)
class Recurrent(AttentionImplementation):
    """Linear attention from block to block, O(L) time and memory, in causal models.

    (Katharopoulos et al. 2020, section 3.4; RetNet's chunks, Sun Y. et al. 2023, equation 7.) Keys of a cache or
    of a source (`own_keys` False) are all read by exact attention, O(S) a token.
    """

    block: int = 64
    forms_weights = False
    recurrent = True

    def __post_init__(self):
        check_positive(self, "block")

    def computes(self, weighting):
        return weighting.linear

    def __call__(self, *arrays, own_keys, queries, keys, mask, weigh, scale=None, **rest):
        if not own_keys:
            return attention(*arrays, queries=queries, keys=keys, mask=mask, weigh=weigh, scale=scale, **rest)
        if given := [name for name, value in rest.items() if value is not None]:
            raise ValueError(f"recurrent attention takes no {given[0]}; use exact")
        return recurrent_attention(*arrays, tokens=queries, mask=mask, weigh=weigh, scale=scale, block=self.block)
