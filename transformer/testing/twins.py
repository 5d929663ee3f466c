"""Properties against another program of the same model, or of one choice: layers scanned, devices, replicas, counts."""

import contextlib
import dataclasses
import math
import re
import warnings
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, use_abstract_mesh

from transformer.analysis.activations import intervene, run_with_cache
from transformer.analysis.counts import forward_flops, parameter_count
from transformer.core.errors import ConfigError
from transformer.core.values import Variant
from transformer.functional.masks import Tokens
from transformer.mixers.attention.attention import Attention
from transformer.mixers.mixer import Mixer
from transformer.mixers.recurrent.recurrence import Recurrence
from transformer.models.build import pure_model
from transformer.models.stack import Scanned, Unrolled
from transformer.norms.norm import layer_norm
from transformer.residuals.residual import Depth
from transformer.runs.mesh import MeshConfig
from transformer.testing.comparing import HALF, ROUNDING, DoesNotApply, applies, close, close_gradients, differ
from transformer.testing.evaluation import Evaluated
from transformer.testing.properties import LONG, ONES, TOKENS, Property, mixers, routed
from transformer.testing.subject import LENGTH, ROOM, Subject, compiled, shaken
from transformer.training.sharding import make_mesh, parameter_axes


def shifted(subject: Subject) -> None:
    """Under a relative scheme shifting all positions together changes nothing; under another one it does."""
    config = subject.config
    positions = [one for one in (config.position, *(kind.position for kind in config.kinds)) if one is not None]
    applies(all(one.extrapolates for one in positions))
    applies(_blind(subject, "sparsity"))
    logits, moved = (subject.logits(LONG, positions=np.arange(ROOM) + shift) for shift in (0, 40))
    parts = [part for mixer in mixers(subject) for part in getattr(mixer, "parts", ())]
    absolute = any("to_key" in one.acts for one in positions) and not all(part.keys_have_positions for part in parts)
    if all(one.relative for one in positions) and _blind(subject, "score_mod") and not absolute:
        close(moved, logits, "a relative scheme changes with a shift")
    else:
        differ(moved, logits, "an absolute scheme does not change with a shift")


def unplaced(subject: Subject) -> None:
    """A function of scores that is not `positional` is the same at other positions."""
    mods = {mixer.score_mod for mixer in mixers(subject) if isinstance(mixer, Attention) and mixer.score_mod}
    applies(any(not mod.positional for mod in mods))
    scores_BHLS = jax.random.normal(jax.random.key(0), (2, 4, LENGTH, LENGTH))
    one, other = Tokens.at(np.arange(LENGTH)), Tokens.at(3 * np.arange(LENGTH)[::-1])
    for mod in [mod for mod in mods if not mod.positional]:
        params = {name: np.asarray(spec.initial_value(jax.random.key(0))) for name, spec in mod.parameters(4).items()}
        params = jax.tree.map(jnp.asarray, shaken(params))
        here, there = mod(scores_BHLS, one, other, params), mod(scores_BHLS, other, one, params)
        close(there, here, f"{mod} reads positions, and positional is False")


def _blind(subject: Subject, choice: str) -> bool:
    """Whether a choice of attention depends on no positions but by their distances."""
    choices = [getattr(mixer, choice, None) for mixer in mixers(subject)]
    return all(one is None or one.relative for one in choices)


def scanned(subject: Subject) -> None:
    """Scanned layers, recomputed in the backward pass, have the values and gradients of the loop over layers."""
    other = Scanned(remat="full") if isinstance(subject.config.layers, Unrolled) else Unrolled()
    twins = (subject.changed(layers=other), subject)
    ((loss, _), gradient), ((expected, _), own) = (one.gradient(subject.params, TOKENS, ONES) for one in twins)
    close(loss, expected, f"{other}: another loss")
    close_gradients(gradient, own, str(other))


def precise(subject: Subject) -> None:
    """Compiled by XLA, the program has the logits and gradients that 64-bit floats throughout give, up to rounding.

    Where there are two devices, heads, features, experts and vocabulary are divided over them.
    """
    mesh = MeshConfig(replica=1, data=1, model=min(2, len(jax.devices())))
    devices = make_mesh(mesh, 1, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the vocabulary of the tests cannot be divided
        axes = parameter_axes(mesh, subject.config, subject.params, devices)
    there = jax.tree.map(
        lambda leaf, own: jax.device_put(leaf, NamedSharding(devices, _placed(own, leaf.ndim))), subject.params, axes
    )

    def divided(*arguments):
        with use_abstract_mesh(devices.abstract_mesh):
            return subject.gradient.function(*arguments)

    (_, logits), gradient = compiled(divided)(there, TOKENS, ONES)
    (_, exact), expected = subject.gradient.in_float64(subject.params, TOKENS, ONES)
    close(logits, exact, "float64", ROUNDING)
    close_gradients(gradient, expected, "float64", ROUNDING)


def _placed(axes: tuple, rank: int) -> PartitionSpec:
    """The sharding of an array whose last axes are cut."""
    return PartitionSpec(*(None,) * (rank - len(axes)), *axes)


def rounded(subject: Subject) -> None:
    """In bfloat16 the logits are float32 and near those of float32, and every parameter stays float32.

    Tokens are routed as in float32, because one near the border of two experts may cross it when rounded.
    """
    twin = subject.changed(dtype="bfloat16")
    if routed(subject):
        read = Evaluated(lambda params: run_with_cache(subject.apply, params, LONG, names="*.router"))
        exact, routers = read(subject.initial)
        held = {name: lambda _, logits=logits: logits for name, logits in routers.items()}
        logits = Evaluated(intervene(twin.apply, held))(subject.initial, LONG)
    else:
        logits, exact = (one.logits(LONG, params=subject.initial) for one in (twin, subject))
    close(logits, exact, "bfloat16", HALF)


def multiplied(subject: Subject) -> None:
    """With products of bfloat16 XLA has a kernel for each of them, and the logits are near those of float32."""
    applies(not routed(subject))

    def run(*arguments):
        with jax.default_matmul_precision("bfloat16"):
            return subject.gradient.function(*arguments)

    (_, logits), gradient = compiled(run)(subject.initial, TOKENS, ONES)
    close(logits, subject.alone(TOKENS, params=subject.initial), "products of bfloat16", HALF)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient)), "a gradient is not finite"


def replicated(subject: Subject) -> None:
    """Two runs in one program are the same as two separate runs."""
    params = (subject.params, shaken(subject.params, seed=1))
    both = subject.replicas(LONG, params=params, valid=np.arange(ROOM) < LENGTH)[:, :, :LENGTH]
    for logits, own in zip(both, params, strict=True):
        close(logits, subject.alone(TOKENS, params=own), "a replica is not the single run")


def drops(subject: Subject) -> None:
    """Without a key nothing is random: the model is the one without dropout. A key decides what each sequence drops."""
    config = subject.config
    for path in ("dropout", "stochastic_depth", "mixer.dropout", "feed_forward.dropout"):
        with contextlib.suppress(ConfigError):  # other mixers have none, nor has attention that forms no weights
            config = config.replace({path: 0.5})
    _, apply = pure_model(config)
    close(Evaluated(apply)(subject.params, TOKENS), subject.alone(TOKENS), "dropped without a key")
    dropped = Evaluated(lambda params, key: apply(params, TOKENS[[0, 0]], key=key))
    first, again, other = (dropped(subject.params, jax.random.key(seed)) for seed in (0, 0, 1))
    assert (first == again).all(), "one key drops something else the second time"
    differ(first, other, "two keys")
    differ(first[0], first[1], "two equal sequences under one key")


def begins_as(subject: Subject) -> None:
    """Where the paper says so, the initial model equals a simpler one."""
    values = dict(_variants(subject.config))
    simpler = {path: value.begins_as for path, value in values.items() if value.begins_as is not None}
    applies(bool(simpler))
    for path, value in simpler.items():
        twin = Subject(subject.config.replace({path: value}))
        logits = twin.logits(LONG, params=_shared(twin.initial, subject.initial))
        close(subject.logits(LONG, params=subject.initial), logits, f"{values[path]} does not begin as {value}")


def _variants(config: Any, prefix: str = "") -> Iterator[tuple[str, Variant]]:
    """The variants in a config by dotted path."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, Variant):
            yield prefix + field.name, value
            yield from _variants(value, f"{prefix}{field.name}.")


def begins_silent(subject: Subject) -> None:
    """Where the initial factor of every branch is 0, the layers do nothing at first, whatever their parameters."""
    applies(subject.config.residual.begins_silent)

    def moved(path, old, new):
        return old if "'branch'" in jax.tree_util.keystr(path) else new

    blocks = subject.initial["blocks"]
    others = jax.tree.map_with_path(moved, blocks, shaken(blocks))
    params = subject.initial | {"blocks": others}
    logits, expected = (subject.alone(TOKENS, params=p) for p in (params, subject.initial))
    close(logits, expected, "a layer does something at first")


def passes_through(subject: Subject) -> None:
    """A sublayer with output 0 leaves the stream unchanged, unless the stream itself is normalized."""
    residual = subject.config.residual
    applies("output" not in residual.norms)
    rng = np.random.default_rng(0)
    x_BLD = jnp.asarray(rng.normal(size=(1, 3, subject.config.d_model)) + 1, jnp.float32)
    specs = residual.parameters(subject.config.d_model)
    params = {name: spec.initial_value(jax.random.key(0)) for name, spec in specs.items()}
    stream = residual.start(x_BLD, 2)
    after = residual(stream, jnp.zeros_like, dict.fromkeys(residual.norms, layer_norm), params, Depth(0, 2, 0, 2, 4))
    for left, right in zip(jax.tree.leaves(after), jax.tree.leaves(stream), strict=True):
        close(left, right, f"{residual} changes the stream on its own")


def fades(subject: Subject) -> None:
    """Where a scheme says so (`fades`), a key weighs less the further away it is."""
    position, heads = subject.config.position, subject.config.num_maps
    if position is None or not position.fades:
        raise DoesNotApply
    specs = position.parameters(subject.config.d_model, heads, LENGTH)
    params = {name: spec.initial_value(jax.random.key(0)) for name, spec in specs.items()}
    bias = position.bias(jnp.zeros((1, LENGTH, heads, 8)), True, params)
    assert bias is not None, f"{position} fades and has no bias"
    places = Tokens.at(np.arange(LENGTH))
    last = np.asarray(bias(places, places))[0, :, -1]
    assert (np.diff(last) > 0).all(), f"{position}: a key does not weigh less the further away it is"


def counted(subject: Subject) -> None:
    """Counted operations are those of the products in the program given to XLA, parameters those of the tree."""
    config = subject.config
    tree = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(subject.initial))
    assert parameter_count(config) == tree, f"{parameter_count(config)} parameters are counted, there are {tree}"
    attentions = [kind.attention for kind in config.kinds if kind.attention is not None]
    if not all(one.forms_weights for one in attentions) or routed(subject):
        return  # the text of a loop does not say how often it is repeated
    if any(_steps(mixer) for mixer in mixers(subject)):
        config = config.replace(max_length=1)  # the loop over tokens is repeated once
    params, apply = pure_model(config.replace(layers=Unrolled()))
    program = jax.jit(apply).lower(params, *config.example_inputs()).as_text()
    flops = sum(_product_flops(line) for line in program.splitlines() if "stablehlo.dot_general" in line)
    assert forward_flops(config) == flops, f"{forward_flops(config):.0f} operations are counted, XLA gets {flops:.0f}"


def _steps(mixer: Mixer) -> bool:
    """Whether a mixer takes its tokens one after another, by the step that defines it."""
    return isinstance(mixer, Recurrence) and type(mixer).parallel is Recurrence.parallel


def _product_flops(line: str) -> float:
    """Operations of one product in the text of a program."""
    shapes = [[int(n) for n in re.findall(r"(\d+)x", shape)] for shape in re.findall(r"tensor<([^>]*)>", line)]
    contracted = re.search(r"contracting_dims = \[([^\]]*)\]", line)
    assert contracted is not None, line
    inner = [shapes[0][int(axis)] for axis in contracted[1].split(",") if axis]
    return 2.0 * math.prod(shapes[-1]) * math.prod(inner)


def _shared(own: dict, other: dict) -> dict:
    """The tree of `own` with the values of `other` where it has them."""
    return {k: _shared(v, other[k]) if isinstance(v, dict) else other[k] for k, v in own.items() if k in other}


TWINS: tuple[Property, ...] = (
    scanned,
    precise,
    rounded,
    multiplied,
    replicated,
    drops,
    shifted,
    unplaced,
    begins_as,
    begins_silent,
    passes_through,
    fades,
    counted,
)
"""Properties against another program, or of a choice alone: checked once, in the first context that takes it."""
