"""Activations by name: read, and changed by interventions, in any program of a model.

A model marks its activations with JAX's `checkpoint_name` inside of `jax.named_scope`s; scopes and name together
are the mark. A program is traced, its marks are found, and it is evaluated again with the wanted activations read or
changed. So the program of a model that is not watched has no additional operations, and scanned layers, replicas
(`jax.vmap`), gradients and `jax.jit` work.

    blocks.3.resid_pre        (B, L, D)     the stream before block 3
    blocks.3.attention.in     (B, L, D)     what the sublayer reads; also cross_attention, feed_forward
    blocks.3.attention.q      (B, L, H, K)  queries as scored; k (B, S, G, K), v (B, S, G, K)
    blocks.3.attention.scores (B, H, L, S)  scaled, with bias, before the mask; float32
    blocks.3.attention.pattern (B, H, L, S) the weights; float32
    blocks.3.attention.z      (B, L, H, K)  the output of each head
    blocks.3.attention.out    (B, L, D)     the output of the sublayer
    blocks.3.resid_attention  (B, L, D)     the stream after it
    blocks.3.feed_forward.pre (B, L, F)     before the activation; with a gate also pre_1
    blocks.3.feed_forward.post (B, L, F)    after it
    blocks.3.resid_post       (B, L, D)     the stream after block 3
    final_norm.out            (B, L, D)     the states that logits are made of; `.scale` is the statistic of a norm

In an encoder-decoder all names begin with `encoder.` or `decoder.`. Scores and pattern exist where the
implementation of attention forms them.
"""

import fnmatch
import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Jaxpr, JaxprEqn, Literal

from transformer.analysis.programs import called, scan_sizes
from transformer.core.errors import ConfigError, nearest
from transformer.core.modules import Apply, Params, check_apply

Activations = dict[str, jax.Array]
Intervention = Callable[[jax.Array], jax.Array]
"""A function of an activation; the result, of the same shape and dtype, replaces it. One that acts on some activations
alone has a method `unfit(name)`: what the one of that name, such as `z`, lacks, or None."""
_LAYERS = re.compile(r"\[(\d+)::(\d+)\]")


def run_with_cache(
    apply: Apply,
    params: Params,
    *args: Any,
    names: str | Iterable[str] = "*",
    interventions: Mapping[str, Intervention] | None = None,
    **kwargs: Any,
) -> tuple[Any, Activations]:
    """(result of `apply(params, *args, **kwargs)`, activations by name).

    Args:
      apply: from `split`, or any pure function that calls it.
      params: its parameters.
      args: arrays, or trees of them.
      names: patterns with `*`, such as `blocks.*.attention.pattern`.
      interventions: functions of activations, by pattern; see `intervene`.
      kwargs: keyword arguments of `apply`.

    Raises:
      ConfigError: a pattern matches no name, or an intervention is not for it.
      ValueError: an intervention changes the shape or dtype.
    """
    check_apply(apply, "run_with_cache")
    changes = {} if interventions is None else interventions
    _check_interventions(changes)
    # Only parameters are traced, so that a model sees inputs which have no numbers, or wrong ones.
    program, shape = jax.make_jaxpr(lambda params: apply(params, *args, **kwargs), return_shape=True)(params)
    passed = Counter(_marks(program.jaxpr))
    there = _in_order(passed)
    wanted = [names] if isinstance(names, str) else list(names)
    for pattern in (*wanted, *changes):
        if not fnmatch.filter(there, pattern):
            unformed = pattern.endswith((".scores", ".pattern")) and not fnmatch.filter(there, "*.scores")
            hint = "; attention forms them without a backend" if unformed else nearest(pattern, there)
            raise ConfigError(f"no activation is named {pattern!r}{hint}")
    for pattern, change in changes.items():
        unfit = getattr(change, "unfit", lambda _: None)
        for name in fnmatch.filter(there, pattern):
            if reason := unfit(name.rpartition(".")[2]):
                raise ConfigError(f"{name} has {reason}")
    keeps = {name for pattern in wanted for name in fnmatch.filter(there, pattern)}
    visit = _Visit(passed, keeps, changes)
    outputs = visit.run(program.jaxpr, [*program.consts, *jax.tree.leaves(params)])
    found = visit.activations()
    return jax.tree.unflatten(jax.tree.structure(shape), outputs), {
        name: found[name] for name in there if name in found
    }


def intervene(apply: Apply, interventions: Mapping[str, Intervention]) -> Apply:
    """`apply` with some activations replaced by functions of them, by pattern of their names.

    Where two patterns match a name, the first acts first; one that matches none raises `ConfigError` in the call.
    The result is an `apply` like the one given: it may be called under `jax.jit` and `jax.vmap`, differentiated,
    watched by `run_with_cache`, or changed again. `generate` decodes with it: a function then gets the activations of
    the prompt first, and after that of one token at a time.
    """
    check_apply(apply, "intervene")
    _check_interventions(interventions)
    at_start: set[str] = set()
    """Patterns of what is computed before decoding, such as an encoder's."""

    def changed(params, *args, **kwargs):
        method = kwargs.get("method")
        if method in ("vocabularies", "empty_memory", "patches"):
            return apply(params, *args, **kwargs)
        if method == "reader":
            return functools.partial(changed, params, method="extend")
        if method == "start":
            return started(params, *args, **kwargs)
        here = interventions
        if elsewhere := {"read_out": interventions, "extend": at_start}.get(str(method)):
            found = _present(functools.partial(apply, **kwargs), params, *args)
            here = {own: f for own, f in here.items() if own not in elsewhere or fnmatch.filter(found, own)}
        return run_with_cache(apply, params, *args, names=(), interventions=here, **kwargs)[0]

    def started(params, *sizes, **kwargs):
        def start(params):
            return apply(params, *sizes, **kwargs)

        found = _present(start, params)
        here = {own: f for own, f in interventions.items() if fnmatch.filter(found, own)}
        at_start.update(here)
        return run_with_cache(start, params, names=(), interventions=here)[0]

    return changed


def _check_interventions(interventions: Any) -> None:
    """Raise `ConfigError` where they are no functions by the name of an activation."""
    like = '{"blocks.0.attention.z": jnp.zeros_like}'
    if not isinstance(interventions, Mapping):
        given = type(interventions).__name__
        raise ConfigError(f"interventions: a dict such as {like} is needed, and {given} is given")
    if wrong := [name for name, change in interventions.items() if not callable(change)]:
        change = interventions[wrong[0]]
        raise ConfigError(f"interventions: {change!r} on {wrong[0]!r} is no function of the activation, as in {like}")


def _present(function: Callable[..., Any], *args: Any) -> list[str]:
    """The names of the activations of a function of arrays, of which there may be none."""
    return _in_order(Counter(_marks(jax.make_jaxpr(function)(*args).jaxpr)))


def activation_names(apply: Apply, params: Params, *args: Any, **kwargs: Any) -> dict[str, jax.ShapeDtypeStruct]:
    """The shape and dtype of every activation, in the order of the program; nothing is computed.

    (Under `jax.jit` the activations themselves come in the order of their names.)
    """
    order: list[str] = []

    def run(params, *args):
        found = run_with_cache(apply, params, *args, **kwargs)[1]
        order.extend(found)
        return found

    shapes = jax.eval_shape(run, params, *args)
    return {name: shapes[name] for name in order}


def stacked(activations: Activations, name: str) -> jax.Array:
    """One activation of all layers, (N, …): `stacked(activations, "blocks.*.attention.pattern")`.

    Raises:
      ConfigError: the pattern matches no activation.
    """
    found = fnmatch.filter(activations, name)
    if not found:
        raise ConfigError(f"no activation is named {name!r}{nearest(name, activations)}")
    return jnp.stack([activations[one] for one in sorted(found, key=_numbers)])


def _numbers(name: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", name)]


def _layers(mark: str, times: int) -> list[int]:
    """The layer of a mark each time it is passed: `blocks[1::2].q` is in blocks 1, 3, …; others have no layer."""
    slices = _LAYERS.search(mark)
    first, step = map(int, slices.groups()) if slices else (0, 0)
    return [first + step * time for time in range(times)] if slices else []


def _names(mark: str, times: int) -> list[str]:
    """The name of a mark each time it is passed."""
    return [_LAYERS.sub(f".{layer}", mark) for layer in _layers(mark, times)] or [mark] * times


def _in_order(passed: Mapping[str, int]) -> list[str]:
    """The names of marks in the order in which they are passed: block by block, not mark by mark."""
    stacks = [mark.split("[")[0] for mark in passed]
    places = {}
    for number, (stack, (mark, times)) in enumerate(zip(stacks, passed.items(), strict=True)):
        layers = _layers(mark, times)
        own = [(stacks.index(stack), layer, number) for layer in layers] or [(number, 0, 0)] * times
        places |= dict(zip(_names(mark, times), own, strict=True))
    return sorted(places, key=lambda name: places[name])


def _inside(scopes: str, step: JaxprEqn) -> str:
    """The scopes around what a step calls, each followed by a dot; `scopes` are those around its program."""
    own = [part.name for part in step.source_info.name_stack.stack if type(part).__name__ == "Scope"]
    return scopes + "".join(f"{name}." for name in own)


def _marks(program: Jaxpr, scopes: str = "") -> Iterator[str]:
    """Every mark, repeated as often as it is passed."""
    for step in program.eqns:
        if step.primitive.name == "name":
            yield _inside(scopes, step) + step.params["name"]
        elif (inner := called(step)) is not None:
            marks = list(_marks(inner[0], _inside(scopes, step)))
            yield from marks * (step.params["length"] if step.primitive.name == "scan" else 1)


@dataclass
class _Visit:
    """One evaluation of a program, which keeps the activations it reads."""

    passed: Mapping[str, int]
    """How often each mark is passed in total."""
    keeps: set[str]
    changes: Mapping[str, Intervention]
    before: dict[str, Any] = field(default_factory=dict)
    """How often a mark was passed before this program."""
    here: Counter[str] = field(default_factory=Counter)
    """How often it was passed in this program."""
    kept: dict[str, list[jax.Array]] = field(default_factory=dict)
    """Arrays by mark, with a leading axis of times."""

    def run(self, program: Jaxpr, inputs: Sequence[Any], scopes: str = "") -> list[Any]:
        """The outputs of a program whose constants are its first inputs."""
        values: dict[Any, Any] = dict(zip([*program.constvars, *program.invars], inputs, strict=True))

        def read(variable):
            return variable.val if isinstance(variable, Literal) else values[variable]

        for step in program.eqns:
            outputs = self._step(step, [read(variable) for variable in step.invars], scopes)
            values.update(zip(step.outvars, outputs, strict=True))
        return [read(variable) for variable in program.outvars]

    def activations(self) -> Activations:
        """The kept activations by name; one that is passed several times under one name has a leading axis of times."""
        found = {}
        for mark, parts in self.kept.items():
            rows = jnp.concatenate(parts)
            names = _names(mark, len(rows))
            of_times = {mark: rows} if len(set(names)) < len(names) else dict(zip(names, rows, strict=True))
            found |= {name: row for name, row in of_times.items() if name in self.keeps}
        return found

    def _step(self, step: JaxprEqn, inputs: list[Any], scopes: str) -> Sequence[Any]:
        scopes = _inside(scopes, step)
        if step.primitive.name == "name":
            return [self._mark(step, inputs[0], scopes + step.params["name"])]
        inner = called(step)
        if inner is None or not any(_marks(inner[0])):
            outputs = step.primitive.bind(*inputs, **step.primitive.get_bind_params(step.params))
            return outputs if step.primitive.multiple_results else [outputs]
        program, consts = inner
        inputs = [*consts, *inputs]
        is_scan = step.primitive.name == "scan"
        return self._scan(step, program, inputs, scopes) if is_scan else self.run(program, inputs, scopes)

    def _mark(self, step: JaxprEqn, x: jax.Array, mark: str) -> jax.Array:
        time = self.before.get(mark, 0) + self.here[mark]
        self.here[mark] += 1
        names = _names(mark, self.passed[mark])
        for pattern, change in self.changes.items():
            chosen = [number for number, name in enumerate(names) if fnmatch.fnmatchcase(name, pattern)]
            if not chosen:
                continue
            if isinstance(time, int):
                x = _checked(change(x), x, names[time]) if time in chosen else x
            else:
                here = jnp.isin(time, jnp.asarray(chosen))
                x = lax.cond(here, lambda x, f=change, name=pattern: _checked(f(x), x, name), lambda x: x, x)
        if not self.keeps.isdisjoint(names):
            self.kept.setdefault(mark, []).append(x[None])
        return step.primitive.bind(x, **step.params | {"name": mark})  # bound here, outside of its scopes

    def _scan(self, step: JaxprEqn, inner: Jaxpr, inputs: list[Any], scopes: str) -> list[Any]:
        length, each = step.params["length"], Counter(_marks(inner, scopes))
        num_fixed, num_carried = scan_sizes(step)
        fixed, start, stacks = inputs[:num_fixed], inputs[num_fixed:][:num_carried], inputs[num_fixed + num_carried :]
        base = {mark: self.before.get(mark, 0) + self.here[mark] for mark in each}

        def turn(carry, rows):
            number, state = carry
            before = {mark: base[mark] + number * times for mark, times in each.items()}
            visit = _Visit(self.passed, self.keeps, self.changes, before)
            outputs = visit.run(inner, [*fixed, *state, *rows], scopes)
            made = {mark: jnp.concatenate(parts) for mark, parts in visit.kept.items()}
            return (number + 1, outputs[:num_carried]), (outputs[num_carried:], made)

        (_, state), (rows, made) = lax.scan(
            turn, (jnp.int32(0), start), stacks, length, step.params["reverse"], step.params["unroll"]
        )
        self.here.update({mark: times * length for mark, times in each.items()})
        for mark, found in made.items():
            self.kept.setdefault(mark, []).append(found.reshape(-1, *found.shape[2:]))
        return [*state, *rows]


def _checked(new: Any, old: jax.Array, name: str) -> jax.Array:
    if not isinstance(new, jax.Array | np.ndarray):
        raise ConfigError(f"{name}: its intervention returns {type(new).__name__}, not an array {list(old.shape)}")
    if (new.shape, new.dtype) != (old.shape, old.dtype):
        raise ValueError(f"{name}: {old.dtype}{list(old.shape)} is replaced by {new.dtype}{list(new.shape)}")
    return jnp.asarray(new)
