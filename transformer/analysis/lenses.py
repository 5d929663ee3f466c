"""The stream read as logits: after each sublayer, and split into what each sublayer and head adds to it."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from transformer.analysis.activations import (
    Activations,
    Intervention,
    activation_names,
    intervene,
    run_with_cache,
)
from transformer.core.arrays import check_ids
from transformer.core.errors import ConfigError
from transformer.core.modules import Apply, Params


def logit_lens(apply: Apply, params: Params, *args: Any, **kwargs: Any) -> dict[str, jax.Array]:
    """The logits (B, L, V) of the stream at each place, as if the model ended there (nostalgebraist 2020), by name.

    Args:
      apply: from `split`, of a model that returns logits.
      params: its parameters.
      args: its inputs.
      kwargs: further inputs.

    Raises:
      ConfigError: the stream has several parts, or fewer vectors than tokens, or there are no logits for each target.
    """
    places = list(_places(activation_names(apply, params, *args, **kwargs)))
    _, streams = run_with_cache(apply, params, *args, names=places, **kwargs)

    def read(stream):
        return intervene(apply, {places[-1]: lambda _: stream})(params, *args, **kwargs)

    return dict(zip(places, _of_each(read, jnp.stack([streams[name] for name in places])), strict=True))


def logit_attribution(
    apply: Apply, params: Params, *args: Any, target_BL: jax.Array, **kwargs: Any
) -> dict[str, jax.Array]:
    """What each part of the stream adds to the logits of some tokens, (B, L) by part (Elhage et al. 2021).

    The parts are `embedding`; each head, such as `blocks.0.attention.head_1`; what each sublayer adds besides
    its heads, such as `blocks.0.attention` (a bias, and that of a norm of the stream after it) or
    `blocks.0.feed_forward`; and `rest`, the biases of the final norm and of the logits. Norms keep the divisors of the
    whole run, which makes them linear, and each part goes through those of the stream that come after it. All parts
    add up to the logit: where something else, such as a cap, lies between the stream and the logits,
    `rest` holds what cannot be divided among the parts.

    Args:
      apply: from `split`, of a language model or an encoder-decoder.
      params: its parameters.
      args: its inputs.
      target_BL: tokens whose logits are explained.
      kwargs: further inputs.

    Raises:
      ConfigError: the stream has several parts, or fewer vectors than tokens; a target is no token.
    """
    shapes = activation_names(apply, params, *args, **kwargs)
    places = _places(shapes)
    divisors = [name for name in shapes if name.endswith(".scale")]
    logits, found = run_with_cache(apply, params, *args, names=(*places, *divisors), **kwargs)
    if logits.shape[:-1] != jnp.shape(target_BL):
        raise ConfigError(f"logit_attribution: targets {jnp.shape(target_BL)} for logits {logits.shape}")
    check_ids(target_BL, logits.shape[-1], "logit_attribution: target")
    first, *_, last = places
    final = first.replace("blocks.0.resid_pre", "final_norm.scale")

    def of_target(logits_BLV):
        return jnp.take_along_axis(logits_BLV, target_BL[..., None], -1)[..., 0]

    def read(stream):
        frozen = {name: lambda _, scale=found[name]: scale for name in divisors if name == final}
        return of_target(intervene(apply, {last: lambda _: stream} | frozen)(params, *args, **kwargs))

    added = _Known(functools.partial(apply, **kwargs), (params, *args), shapes, found).added(places)
    nothing, *read_off = _of_each(read, jnp.stack([jnp.zeros_like(found[first]), *added.values()]))
    parts = {name: own - nothing for name, own in zip(added, read_off, strict=True)}
    return parts | {"rest": of_target(logits) - sum(parts.values())}


class _Known(NamedTuple):
    """A run whose stream and divisors are known, and its stream if something were another and all divisors stayed."""

    apply: Apply
    inputs: tuple[Any, ...]
    shapes: Mapping[str, jax.ShapeDtypeStruct]
    found: Activations

    def added(self, places: Mapping[str, Sequence[str]]) -> Activations:
        """What each part added to the stream, as it is at the last place."""
        before, *later = places
        added = {"embedding": self.found[before]}
        for place in later:
            added = self.passed_on(added, before, place, places[place])
            part, before = self.found[place] - sum(added.values()), place
            for sublayer in (one for one in places[place] if f"{one}.z" in self.shapes):
                heads = self.heads(place, sublayer)
                added, part = added | heads, part - sum(heads.values())
            added["+".join(places[place])] = part
        return added

    def passed_on(self, added: Activations, before: str, place: str, sublayers: Sequence[str]) -> Activations:
        """What was added, after the norms and factors of the stream between two places."""

        def alone(stream):
            silent = {f"{sublayer}.out": jnp.zeros_like for sublayer in sublayers}
            return self.stream_at(place, before, {before: lambda _: stream} | silent)

        if _same(alone(self.found[before]), self.found[before]):
            return added
        nothing, *own = _of_each(alone, jnp.stack([jnp.zeros_like(self.found[before]), *added.values()]))
        return {name: each - nothing for name, each in zip(added, own, strict=True)}

    def heads(self, place: str, sublayer: str) -> Activations:
        """What each head of a sublayer added to the stream at the place after it."""
        num_heads, z = self.shapes[f"{sublayer}.z"].shape[2], f"{sublayer}.z"

        def with_heads(chosen_H):
            return self.stream_at(place, z, {z: lambda z_BLHK: z_BLHK * chosen_H[:, None].astype(z_BLHK.dtype)})

        choices = jnp.concatenate([jnp.zeros((1, num_heads), jnp.float32), jnp.eye(num_heads, dtype=jnp.float32)])
        silent, *alone = _of_each(with_heads, choices)
        return {f"{sublayer}.head_{head}": own - silent for head, own in enumerate(alone)}

    def stream_at(self, place: str, since: str, changes: Mapping[str, Intervention]) -> jax.Array:
        """The stream at a place, with changes and the known divisors from another place on."""
        names = list(self.shapes)
        divisors = [name for name in names[names.index(since) : names.index(place)] if name.endswith(".scale")]
        kept = {name: lambda _, scale=self.found[name]: scale for name in divisors}
        return run_with_cache(self.apply, *self.inputs, names=place, interventions={**kept, **changes})[1][place]


def _of_each(f: Callable[[jax.Array], jax.Array], arrays: jax.Array) -> jax.Array:
    """`f` of each array, at once, or one after another where a part of the model has no `vmap`: products of experts."""
    try:
        return jax.vmap(f)(arrays)
    except NotImplementedError:
        return jax.lax.map(f, arrays)


def _same(one: jax.Array, other: jax.Array) -> bool:
    """Whether two arrays are known to be one."""
    return not isinstance(one, Tracer) and np.array_equal(one, other)


def _places(shapes: Mapping[str, jax.ShapeDtypeStruct]) -> dict[str, list[str]]:
    """The places of the stream that ends in logits, in order, each with the sublayers since the previous one."""
    names = list(shapes)
    if several := [name for name in names if ".resid_post." in name]:
        raise ConfigError(
            f"the stream has several parts, {several[0]} is one, and none of them alone is read as logits"
        )
    last = [name for name in names if name.endswith(".resid_post")][-1]
    stack = last.rpartition("blocks.")[0] + "blocks."
    places: dict[str, list[str]] = {f"{stack}0.resid_pre": []}
    sublayers: list[str] = []
    for name in (name for name in names if name.startswith(stack)):
        if name.endswith(".in"):
            sublayers.append(name.removesuffix(".in"))
        elif ".resid_" in name and not name.endswith(".resid_pre"):
            places[name], sublayers = sublayers, []
    if other := [name for name in places if shapes[name].shape != shapes[last].shape]:
        raise ConfigError(f"the stream has other vectors at {other[0]} than at {last}, and is not read as logits there")
    return places
