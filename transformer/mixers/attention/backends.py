"""How attention is computed: the same numbers at another cost."""

import functools
from dataclasses import dataclass

from transformer.core.checks import check_positive
from transformer.functional.attention import SoftCapped, attention
from transformer.functional.chunked_attention import chunked_attention
from transformer.functional.context import over_context
from transformer.functional.fused_attention import fused_attention
from transformer.functional.linear_attention import recurrent_attention
from transformer.functional.ring_attention import ring_attention
from transformer.mixers.attention.base import Backend


class OnlineSoftmax(Backend):
    """One that computes softmax alone, block by block."""

    def computes(self, normalizer):
        return normalizer is None or normalizer.online


@dataclass(frozen=True)
class Chunked(OnlineSoftmax):
    """Online softmax over blocks, O(L) memory."""

    block: int = 256

    def __post_init__(self):
        check_positive(self, "block")

    def __call__(self, *arrays, own_keys, **how):
        return over_context(functools.partial(chunked_attention, block=self.block), *arrays, **how)


@dataclass(frozen=True)
class Ring(Chunked):
    """Online softmax over blocks that go round the devices of `mesh.context`, which hold O(L / devices) each.

    (Liu H., Zaharia and Abbeel 2023.) `chunked` gathers all keys and values of a layer on every device: this passes on
    as many bytes and never holds them. Under a causal mask each of them has parts from both ends of the text, and so as
    much to do (Grattafiori et al. 2024, section 3.3.2). Without such devices, or tokens that they do not divide, it is
    `chunked`.
    """

    def __call__(self, *arrays, own_keys, **how):
        return ring_attention(*arrays, block=self.block, **how)


@dataclass(frozen=True)
class Fused(OnlineSoftmax):
    """Softmax attention by the flash kernel (Dao et al. 2022) of the device, exact elsewhere and where that cannot.

    On a GPU cuDNN's, which needs bfloat16 or float16, even lengths and a head size that is a multiple of 8 up to 128,
    and reads masks other than that of a causal model without padding, packing and given positions as arrays of L × S;
    on a TPU Splash, which needs lengths of a multiple of 128, a mask of causal, window, padding and segment, and
    positions that follow one another, and takes sinks and a soft cap. Neither takes a positional bias or a trained
    scale; a warning names what is not supported.
    """

    one_size = True

    def changes_scores(self, score_mod):
        return isinstance(score_mod.function({}), SoftCapped)

    def __call__(self, *arrays, own_keys, **how):
        return fused_attention(*arrays, own_keys=own_keys, **how)


@dataclass(frozen=True)
class Recurrent(Backend):
    """Linear attention from block to block, O(L) time and memory, in causal models.

    (Katharopoulos et al. 2020, section 3.4; RetNet's chunks, Sun Y. et al. 2023, equation 7.) Keys of a cache or
    of a source (`own_keys` False) are all read by exact attention, O(S) a token.
    """

    block: int = 64
    recurrent = True

    def __post_init__(self):
        check_positive(self, "block")

    def computes(self, normalizer):
        return normalizer is not None and normalizer.linear

    def __call__(self, *arrays, own_keys, queries, keys, mask, weigh, scale=None, **rest):
        if not own_keys:
            return attention(*arrays, queries=queries, keys=keys, mask=mask, weigh=weigh, scale=scale, **rest)
        if given := [name for name, value in rest.items() if value is not None]:
            raise ValueError(f"recurrent attention takes no {given[0]}; use backend=none")
        return recurrent_attention(*arrays, tokens=queries, mask=mask, weigh=weigh, scale=scale, block=self.block)
