"""Properties that hold for a model with any choices. Each raises AssertionError with one line where it does not."""

import contextlib
import dataclasses
import json
import math
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, use_abstract_mesh

from transformer.analysis.activations import intervene, run_with_cache
from transformer.analysis.counts import forward_flops, parameter_count
from transformer.core.errors import ConfigError
from transformer.core.json import from_json, to_json
from transformer.core.modules import Params
from transformer.core.values import Variant
from transformer.functional.masks import Tokens
from transformer.mixers.attention.attention import Attention
from transformer.mixers.mixer import Mixer
from transformer.mixers.recurrent.recurrence import Recurrence
from transformer.models.build import pure_model
from transformer.models.stack import Scanned, Unrolled
from transformer.norms.norm import layer_norm
from transformer.positions.rotary import RoPE
from transformer.residuals.residual import Depth
from transformer.runs.mesh import MeshConfig
from transformer.testing.evaluation import Evaluated
from transformer.testing.subject import LENGTH, NOW, ROOM, VOCAB, Subject, compiled, shaken, tokens_of
from transformer.training.sharding import make_mesh, parameter_axes

TOKENS = tokens_of(2)
BESIDE = tokens_of(2, ROOM - LENGTH, seed=1)
"""Tokens that share a row with a sequence."""
ALIKE = np.concatenate([TOKENS[[0, 0], :NOW], TOKENS[:, NOW:]], 1)
"""Two texts with the same beginning."""
LONG = np.concatenate([TOKENS, BESIDE], 1)
ONES = np.ones(TOKENS.shape, np.float32)

CLOSE = 2e-4
"""Largest difference of logits that were computed in another order, relative to the largest of them."""
ROUNDING = 2e-5
"""Largest difference to float64; the shipped options differed by 3e-6 at most with both in XLA (2026-11-21)."""
HALF = 0.05
"""Largest difference to bfloat16; the shipped options differed by 0.037 at most with both in XLA (2026-11-22)."""


class DoesNotApply(Exception):
    """A property does not apply to a subject: it neither holds nor fails there."""


def applies(condition: bool) -> None:
    """Raise `DoesNotApply` unless the condition holds."""
    if not condition:
        raise DoesNotApply


def close(left, right, what: str, tolerance: float = CLOSE) -> None:
    """Fail where two arrays differ by more than rounding."""
    difference = _largest_difference(left, right) / (np.abs(right).max() + 1e-6)
    assert difference <= tolerance, f"{what}: differs by {difference:.1e} of the largest value"


def _largest_difference(left, right) -> float:
    """The largest difference of two arrays in one place; NaN, which no tolerance allows, unless all is finite."""
    left, right = np.asarray(left, np.float64), np.asarray(right, np.float64)
    return np.abs(left - right).max() if np.isfinite(left).all() and np.isfinite(right).all() else math.nan


def differ(left, right, what: str) -> None:
    """Fail where two arrays are the same up to rounding."""
    left, right = np.asarray(left, np.float64), np.asarray(right, np.float64)
    assert np.abs(left - right).max() > CLOSE / 10 * np.abs(right).max(), f"{what}: no difference"


def finite(subject: Subject) -> None:
    """Logits are float32 and finite, with the initial parameters and with random ones."""
    for params in (subject.initial, subject.params):
        (_, logits), _ = subject.gradient(params, TOKENS, ONES)
        assert logits.dtype == np.float32, f"logits are {logits.dtype}"
        assert np.isfinite(logits).all(), "logits are not finite"


def causal(subject: Subject) -> None:
    """A token's logits depend on no later token: by value, bit for bit, and by gradient."""
    now = np.zeros(TOKENS.shape, np.float32)
    now[0, NOW] = 1
    (_, logits), gradient = subject.gradient(subject.params, TOKENS, now)
    (_, changed), _ = subject.gradient(subject.params, _with_others(TOKENS, slice(NOW, None)), now)
    assert (logits[:, :NOW] == changed[:, :NOW]).all(), "logits change with a later token"
    if subject.config.head.tied:
        return  # the output table has a gradient in every row
    seen = np.abs(np.asarray(gradient["embedding"]["table"])[TOKENS[0]]).max(-1)
    assert not seen[NOW + 1 :].any(), "the gradient reaches a later token"
    if _sees_all(subject):
        if not seen[: NOW + 1].all():  # weights may be 0 by chance, such as those of a ReLU
            _, other = subject.gradient(shaken(subject.params, seed=1), TOKENS, now)
            seen = seen + np.abs(np.asarray(other["embedding"]["table"])[TOKENS[0]]).max(-1)
        assert (seen[: NOW + 1] > 0).all(), "an earlier token is not seen"


def sees_everything(subject: Subject) -> None:
    """In an encoder the first token's logits depend on the last token."""
    applies(_sees_all(subject))
    logits, changed = (subject.alone(t)[:, 0] for t in (TOKENS, _with_others(TOKENS, slice(-1, None))))
    differ(logits, changed, "the last token is not seen by the first")


def padding(subject: Subject) -> None:
    """Neither the content nor the amount of padding changes anything."""
    padded = (LONG, np.concatenate([TOKENS, BESIDE[:, ::-1]], 1))
    logits, changed = (subject.logits(t, valid=np.arange(ROOM) < LENGTH)[:, :LENGTH] for t in padded)
    close(logits, changed, "logits change with padding", 1e-6)
    assert np.isfinite(logits).all(), "padding makes logits infinite"
    close(logits, subject.alone(TOKENS), "a padded sequence is not the sequence alone")


def packing(subject: Subject) -> None:
    """Packed documents have the logits they have alone, and do not see each other."""
    applies(not subject.config.mixes_tokens)
    for documents, place in (((TOKENS, BESIDE), slice(0, LENGTH)), ((BESIDE, TOKENS), slice(-LENGTH, None))):
        tokens, ends = np.concatenate(documents, 1), documents[0].shape[1]
        segments = np.broadcast_to((np.arange(ROOM) >= ends).astype(np.int32), tokens.shape)
        positions = np.concatenate([np.arange(document.shape[1]) for document in documents])
        packed = subject.logits(tokens, positions=positions, segments=segments)
        close(packed[:, place], subject.alone(TOKENS), "a packed document is not the document alone")


def one_by_one(subject: Subject) -> None:
    """A sequence does not depend on the others of its batch."""
    other = np.stack([TOKENS[0], _with_others(TOKENS, slice(None))[1]])
    close(subject.alone(TOKENS)[0], subject.alone(other)[0], "a sequence depends on its batch")


def _mixers(subject: Subject) -> list[Mixer]:
    """The mixers of all kinds of layers."""
    return [mixer for kind in subject.config.kinds for mixer in kind.mixers]


def _sees_all(subject: Subject) -> bool:
    """Whether a token depends on every token that the mask allows."""
    return bool(_mixers(subject)) and all(mixer.sees_all for mixer in _mixers(subject))


def _blind(subject: Subject, choice: str) -> bool:
    """Whether a choice of attention depends on no positions but by their distances."""
    choices = [getattr(mixer, choice, None) for mixer in _mixers(subject)]
    return all(one is None or one.relative for one in choices)


def routed(subject: Subject) -> bool:
    """Whether some layer has experts."""
    return any(kind.feed_forward is not None and kind.feed_forward.routed for kind in subject.config.kinds)


def _with_others(tokens: np.ndarray, place: slice) -> np.ndarray:
    """Tokens with some places replaced by tokens that occur nowhere else in the sequence."""
    changed = tokens.copy()
    for row in changed:
        unused = np.setdiff1d(np.arange(VOCAB), row)
        row[place] = unused[: len(row[place])]
    return changed


def shifted(subject: Subject) -> None:
    """Under a relative scheme shifting all positions together changes nothing; under another one it does."""
    config = subject.config
    positions = [one for one in (config.position, *(kind.position for kind in config.kinds)) if one is not None]
    applies(all(one.extrapolates for one in positions))
    applies(_blind(subject, "sparsity"))
    logits, moved = (subject.logits(LONG, positions=np.arange(ROOM) + shift) for shift in (0, 40))
    parts = [part for mixer in _mixers(subject) for part in getattr(mixer, "parts", ())]
    absolute = any("to_key" in one.acts for one in positions) and not all(part.relative for part in parts)
    if all(one.relative for one in positions) and _blind(subject, "score_mod") and not absolute:
        close(moved, logits, "a relative scheme changes with a shift")
    else:
        differ(moved, logits, "an absolute scheme does not change with a shift")


def unplaced(subject: Subject) -> None:
    """A function of scores that is not `positional` is the same at other positions."""
    mods = {mixer.score_mod for mixer in _mixers(subject) if isinstance(mixer, Attention) and mixer.score_mod}
    applies(any(not mod.positional for mod in mods))
    scores_BHLS = jax.random.normal(jax.random.key(0), (2, 4, LENGTH, LENGTH))
    one, other = Tokens.at(np.arange(LENGTH)), Tokens.at(3 * np.arange(LENGTH)[::-1])
    for mod in [mod for mod in mods if not mod.positional]:
        params = {name: np.asarray(spec.initial_value(jax.random.key(0))) for name, spec in mod.parameters(4).items()}
        params = jax.tree.map(jnp.asarray, shaken(params))
        here, there = mod(scores_BHLS, one, other, params), mod(scores_BHLS, other, one, params)
        close(there, here, f"{mod} reads positions, and positional is False")


def ordered(subject: Subject) -> None:
    """Order matters under every scheme but `none`, under which an encoder is equivariant."""
    applies(bool(subject.config.mixers))
    order = np.random.default_rng(1).permutation(LENGTH)
    logits, mixed = subject.alone(TOKENS)[:, order], subject.alone(TOKENS[:, order])
    positions = [kind.position for kind in subject.config.kinds]
    orders = any(position is not None and position.orders for position in positions)
    orders |= any(mixer.ordered for mixer in _mixers(subject)) or any(kind.looks_back for kind in subject.config.kinds)
    if not orders and _sees_all(subject):
        close(mixed, logits, "an encoder without positions sees the order")
    else:
        differ(mixed, logits, "the order of tokens does not matter")


def alive(subject: Subject) -> None:
    """Every parameter gets a gradient within three steps from its initial value, and moves.

    Where one does not, a tenth and three times its value are tried too: sums without a norm may be so large that a cap
    is flat, or outgrow float32, and scores so small that a ReLU passes none that a bias has lowered.
    """
    dead = {jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(subject.initial)}
    for share in (1.0, 0.1, 3.0):
        params = jax.tree.map(lambda p, share=share: (share * p).astype(p.dtype), subject.initial)
        for turn in range(3):
            (loss, _), gradient = subject.gradient(params, TOKENS, ONES)
            if not np.isfinite(loss) and share >= 1.0:
                break
            assert np.isfinite(loss), "the loss is not finite"
            for path, leaf in jax.tree.leaves_with_path(gradient):
                assert np.isfinite(leaf).all(), f"the gradient of {jax.tree_util.keystr(path)} is not finite"
                if np.abs(leaf).max() > 1e-12:
                    dead.discard(jax.tree_util.keystr(path))
            # Steps become shorter, so that what begins at 0 does not come back to it.
            step = np.float32(0.02 / (1 + turn))
            params = jax.tree.map(lambda p, g, step=step: p - step * np.sign(g).astype(p.dtype), params, gradient)
        if not dead:
            return
    raise AssertionError(f"no gradient reaches {', '.join(sorted(dead))}")


def cached(subject: Subject) -> None:
    """Token by token with a cache, the logits are those of the whole sequence."""
    close(subject.steps(subject.params, TOKENS), subject.alone(TOKENS), "cached logits are others")


def branched(subject: Subject) -> None:
    """Two texts that begin alike, in one cache, have the logits they have alone."""
    close(subject.beams(subject.params, ALIKE), subject.alone(ALIKE), "logits of beams are others")


def followed(subject: Subject) -> None:
    """Segment by segment, with a memory of all earlier tokens, the logits are those of the whole text."""
    whole = subject
    try:
        position = subject.config.position
        if position is not None and not position.extrapolates:
            whole = Subject(subject.config.replace(position=RoPE()))
        twin = whole.changed(memory_length=LENGTH)
    except ConfigError:
        raise DoesNotApply from None
    logits = Evaluated(whole.apply)(whole.params, TOKENS)
    close(twin.segments(whole.params, TOKENS), logits, "logits of a second segment are others (relative=False?)")


def scanned(subject: Subject) -> None:
    """Scanned layers, recomputed in the backward pass, have the values and gradients of the loop over layers."""
    other = Scanned(remat="full") if isinstance(subject.config.layers, Unrolled) else Unrolled()
    twins = (subject.changed(layers=other), subject)
    ((loss, _), gradient), ((expected, _), own) = (one.gradient(subject.params, TOKENS, ONES) for one in twins)
    close(loss, expected, f"{other}: another loss")
    close_gradients(gradient, own, str(other))


def close_gradients(gradient: Params, expected: Params, what: str, tolerance: float = CLOSE) -> None:
    size = max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(expected))
    for (path, left), right in zip(jax.tree.leaves_with_path(gradient), jax.tree.leaves(expected), strict=True):
        difference = _largest_difference(left, right)
        assert difference <= tolerance * size, f"{what}: another gradient of {jax.tree_util.keystr(path)}"


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
    after = residual(stream, jnp.zeros_like, dict.fromkeys(residual.norms, layer_norm), params, Depth(0, 2, 0, 2))
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
    if any(_steps(mixer) for mixer in _mixers(subject)):
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


def described(value: Variant) -> None:
    """Text form and JSON are read back as the same value."""
    family = value.family()
    assert family.parse(str(value)) == value, f"{value} is parsed as another value"
    assert from_json(family, json.loads(json.dumps(to_json(value)))) == value, f"{value} comes back from JSON changed"


Property = Callable[[Subject], None]
COMBINATION: tuple[Property, ...] = (finite, causal, alive, cached)
"""Properties of a causal model with any combination of choices; they need two programs."""
DECODER: tuple[Property, ...] = (*COMBINATION, branched, padding, packing, one_by_one, followed)
"""Properties of every causal model."""
ENCODER: tuple[Property, ...] = (finite, alive, sees_everything, padding, packing, one_by_one, ordered)
"""Properties of every encoder."""
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
