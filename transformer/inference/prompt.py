"""What decoding starts from, and what it returns."""

import weakref
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from transformer.core.arrays import check_ids
from transformer.core.errors import ConfigError, nearest
from transformer.core.modules import Apply, Params, check_apply
from transformer.functional.cache import Cache, Reader, resized
from transformer.functional.masks import Causal, Prefix
from transformer.inference.processors import Earlier, History

State = TypeVar("State", bound=Any)
SMALLEST = 128
"""Slots; fewer cost a step little, while each size of a cache is compiled."""


class Generated(NamedTuple):
    """Continuations of prompts."""

    tokens_BT: jax.Array
    """(B, T) int32; 0 after the end of a sequence."""
    lengths_B: jax.Array
    """(B,) number of tokens of each, the end token included."""
    log_probability_B: jax.Array
    """(B,) log P of each continuation given its prompt, in nats, the end token included: under the model itself, not
    under what a temperature, a cut or processors make of it."""


def check_prompt(
    caller: str,
    apply: Apply,
    params: Params,
    prompt_BL: Any,
    lengths_B: Any,
    inputs: Mapping[str, Any],
    stop: int | None,
) -> None:
    """Raise `ConfigError` where a prompt is no array (B, L), its lengths are none, tokens or `stop` are not the
    model's, or other inputs are given than it reads.

    This is outside of the program, in which tokens are no numbers yet.
    """
    check_apply(apply, caller)
    if isinstance(prompt_BL, str):
        way = "jnp.asarray(tokenizer.encode(text))[None]"
        raise ConfigError(f"{caller}: the prompt is a text, not an array (B, L) of tokens; encode it first, {way}")
    if not isinstance(prompt_BL, np.ndarray | jax.Array) or prompt_BL.ndim != 2:
        given = getattr(prompt_BL, "shape", type(prompt_BL).__name__)
        raise ConfigError(f"{caller}: the prompt is {given}, not an array (B, L) of tokens")
    if not prompt_BL.size:
        raise ConfigError(f"{caller}: the prompt is {prompt_BL.shape}, an array without tokens")
    read = vocabularies(apply, params)
    needed = read.keys() - {"prompt"}
    for name in inputs:
        if name not in (known := sorted({*needed, *(each.replace("_", "_valid_") for each in needed)})):
            raise ConfigError(f"{caller}: the model reads no input {name!r}{nearest(name, known)}")
    if missing := sorted(needed - inputs.keys()):
        raise ConfigError(f"{caller}: the input {missing[0]} is missing, which the model reads besides the prompt")
    for name, size in read.items():
        if (tokens := prompt_BL if name == "prompt" else inputs.get(name)) is not None:
            check_ids(tokens, size, f"{caller}: {name} token")
    if stop is not None and not 0 <= stop < read["prompt"]:
        raise ConfigError(f"{caller}: stop {stop} is not one of {read['prompt']} tokens")
    if lengths_B is not None:
        B, L = prompt_BL.shape
        if np.shape(lengths_B) != (B,):
            raise ConfigError(f"{caller}: lengths_B is {np.shape(lengths_B)}, not a length for each of {B} prompts")
        check_ids(lengths_B, L + 1, f"{caller}: lengths_B", first=1)


def vocabularies(apply: Apply, params: Params) -> Mapping[str, int]:
    """What the model's method of that name returns; asked once, with the shapes of parameters, and remembered."""
    if apply not in _VOCABULARIES:
        found: dict[str, int] = {}
        jax.eval_shape(lambda params: found.update(apply(params, method="vocabularies")), params)
        _VOCABULARIES[apply] = found
    return _VOCABULARIES[apply]


_VOCABULARIES: weakref.WeakKeyDictionary[Apply, Mapping[str, int]] = weakref.WeakKeyDictionary()


class Prompt(NamedTuple):
    """A model and what it reads before the first choice."""

    apply: Apply
    params: Params
    tokens_BL: jax.Array
    num_tokens: int
    """Largest number of tokens to choose."""
    stop: int | None
    """The token that ends a sequence."""
    lengths_B: jax.Array | None
    """(B,) length of each prompt; None: all are as long as the array."""
    inputs: Mapping[str, Any]
    """Further arguments of the model's `start`."""
    prefix: bool = False
    """Whether all tokens of a prompt see each other."""
    earlier: Earlier | None = None
    """Text before the prompt, for processors; None: there is none."""

    def read(self, ahead: int = 0) -> tuple[jax.Array, Cache]:
        """Logits (B, V) of the token after each prompt, and the cache with room for `num_tokens` more.

        The latest `ahead` tokens of that cache can be undone.
        """
        B, L = self.tokens_BL.shape
        cache = self.apply(self.params, B, self.capacity, method="start", ahead=ahead, **self.inputs)
        valid_BL = None if self.lengths_B is None else jnp.arange(L) < self.lengths_B[:, None]
        whole = {"mask": Causal() | Prefix(L if self.lengths_B is None else self.lengths_B)} if self.prefix else {}
        logits_BLV, cache = self.apply(self.params, self.tokens_BL, cache, method="extend", valid_BL=valid_BL, **whole)
        if self.lengths_B is None:
            return logits_BLV[:, -1], cache
        return jnp.take_along_axis(logits_BLV, self.lengths_B[:, None, None] - 1, 1)[:, 0], cache

    @property
    def capacity(self) -> int:
        """Slots of the cache. The last token chosen is never read, so it needs none."""
        return self.tokens_BL.shape[1] + self.num_tokens - 1

    def loop(self, go_on: Callable[[State], jax.Array], step: Callable[[State], State], state: State) -> State:
        """`lax.while_loop` of a state with the cache of `read`, in which a step fills a slot for each beam.

        A step reads every slot, empty ones too, so a large cache starts small and doubles. A cache whose
        sequences have slots of their own has its full size from the start.
        """
        sizes, each = [state.cache.capacity], state.cache.num_beams
        filled = sizes[0] - each * (self.num_tokens - 1)
        while sizes[0] // 2 >= max(SMALLEST, filled + each):
            sizes.insert(0, sizes[0] // 2)
        if state.cache.written is not None:
            for size in sizes[:-1]:
                state = state._replace(cache=resized(state.cache, size))
                last = size - each
                state = lax.while_loop(lambda s, last=last: go_on(s) & (s.cache.written <= last), step, state)
            state = state._replace(cache=resized(state.cache, sizes[-1]))
        return lax.while_loop(go_on, step, state)

    def reader(self) -> Reader:
        """The model, prepared to read token after token."""
        return self.apply(self.params, method="reader")

    def history(self, tokens_BT: jax.Array, chosen: jax.Array) -> History:
        """Each prompt, after what was before it and followed by the tokens chosen so far.

        Args:
          tokens_BT: (B, T) the chosen ones.
          chosen: () or (B,), their number.
        """
        B, L = self.tokens_BL.shape
        nothing_B = jnp.zeros(B, jnp.int32)
        earlier = self.earlier or Earlier(self.tokens_BL[:, :0], nothing_B, nothing_B)
        ends_B = earlier.lengths_B + (L if self.lengths_B is None else self.lengths_B)
        tokens_BS = jnp.concatenate([earlier.tokens_BS, self.tokens_BL, tokens_BT], 1)
        # What comes after padding moves forward by as much.
        place_BS = jnp.broadcast_to(jnp.arange(tokens_BS.shape[1]), tokens_BS.shape)
        E = earlier.tokens_BS.shape[1]
        before_prompt_B1, after_prompt_B1 = (E - earlier.lengths_B)[:, None], (E + L - ends_B)[:, None]
        padding_BS = jnp.where(place_BS < ends_B[:, None], before_prompt_B1, after_prompt_B1)
        padding_BS = jnp.where(place_BS < earlier.lengths_B[:, None], 0, padding_BS)
        tokens_BS = jnp.take_along_axis(tokens_BS, place_BS + padding_BS, 1, mode="clip")
        return History(tokens_BS, ends_B + chosen, earlier.chosen_B + chosen, self.stop)
