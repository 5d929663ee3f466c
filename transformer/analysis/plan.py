"""What a run needs of one device, as predicted from shapes and the traced step."""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from transformer.analysis.counts import cache_bytes, scoped_flops, train_flops
from transformer.analysis.hardware import Hardware
from transformer.core import modules as pure
from transformer.core.arrays import CONTEXT, DATA, MODEL, REPLICA, compiled_for
from transformer.models.build import pure_model
from transformer.models.config import ModelConfig
from transformer.objectives.objective import Objective
from transformer.runs.config import Replica, RunConfig
from transformer.runs.mesh import MeshConfig
from transformer.training.gradient import draws
from transformer.training.program import Program, make_program, rows_are_alone


class Plan(NamedTuple):
    """The needs of one device; bytes are those at the end of the forward pass, when most are in use."""

    parameters: int
    """Number of parameters of the model, over all devices."""
    parameter_bytes: int
    optimizer_bytes: int
    """What else a step hands on: the state of the update rule, a mean of the parameters, the memory of a segment."""
    gradient_bytes: int
    activation_bytes: int
    """What the forward pass keeps for the backward pass, under the rematerialization policy."""
    cache_bytes: int
    """Cache of one sequence of full length in decoding, which is not part of training."""
    pieces: int
    """In which a batch is computed."""
    flops: float
    """Operations of the matrix products of a step, recomputed ones included."""
    useful_flops: float
    """Those without the recomputed ones: what model FLOP utilization (MFU) is taken of (Chowdhery et al. 2022, B)."""
    data_bytes: float
    """What a step receives from the devices that share the batch."""
    context_bytes: float
    """What it receives from those that share a sequence: keys and values, and their gradients. What passes of
    recurrences is not predicted."""
    model_bytes: float
    """What it receives from those that share a layer."""

    @property
    def received(self) -> float:
        """What a step receives from all other devices."""
        return self.data_bytes + self.context_bytes + self.model_bytes

    @property
    def training_bytes(self) -> int:
        return self.parameter_bytes + self.optimizer_bytes + self.gradient_bytes + self.activation_bytes

    def seconds(self, hardware: Hardware, received: float | None = None) -> float:
        """Seconds of a step on the roofline: the slower of computing and reading, plus the transfers between devices.

        The state is read and written once; in each piece parameters are read three times, activations written and
        read, and sums of gradients read and written.

        Args:
          hardware: of the device.
          received: bytes from other devices; None: those predicted.
        """
        state = self.parameter_bytes + self.optimizer_bytes + self.gradient_bytes
        of_piece = 3 * self.parameter_bytes + 2 * self.activation_bytes + 2 * self.gradient_bytes
        moved = 2 * state + self.pieces * of_piece
        received = self.received if received is None else received
        return max(self.flops / hardware.flops, moved / hardware.bandwidth) + received / hardware.link

    def utilization(self, hardware: Hardware, seconds: float) -> float:
        """Model FLOP utilization: the share of the device's rate that useful operations have."""
        return self.useful_flops / (hardware.flops * seconds)


def plan(
    config: RunConfig, mesh: MeshConfig, devices: list[Any] | None = None, platform: str | None = None
) -> tuple[Plan, Program]:
    """(prediction for one replica on a mesh of devices, by default those there are; program to compile).

    `platform` is what the devices stand for, where they only simulate others: its kernels keep other activations.
    """
    one_step = dataclasses.replace(config, steps_per_dispatch=1)
    program = make_program(one_step, [Replica()], mesh, devices=devices)
    return predict(one_step, program, mesh, platform or program.mesh.devices.flat[0].platform), program


def predict(config: RunConfig, program: Program, mesh: MeshConfig, platform: str) -> Plan:
    """The plan of a run, from shapes and the step as it is traced for a platform."""
    state, sizes = program.abstract_state, program.mesh.shape
    params, _ = pure_model(config.model)
    count, of_blocks = (sum(leaf.size for leaf in jax.tree.leaves(own)) for own in (params, params["blocks"]))
    turns = config.model.num_layers / config.model.num_distinct_layers
    rows = config.batch_size // config.accumulation // sizes[DATA]
    whole, cut = _kept(config.model, config.objective, platform)
    by_scope, useful, random = _operations(config.model, config.objective, rows)
    parts = sizes[CONTEXT] * sizes[MODEL]
    gradient, by_turn = (4 * n / sizes[MODEL] for n in (count, count + (turns - 1) * of_blocks))
    divided = {scope: sizes[MODEL] if _is_divided(scope, config.model, sizes[MODEL]) else 1 for scope in by_scope}
    flops = sum(amount / divided[scope] for scope, amount in by_scope.items())
    own = _bytes_here(state.params)
    cache = cache_bytes(config.model) // _cache_parts(config.model, sizes[MODEL]) if config.model.causal else 0
    return Plan(
        parameters=count,
        parameter_bytes=own,
        optimizer_bytes=_bytes_here((state.opt_state, state.average, state.earlier)),
        gradient_bytes=own * (2 if config.accumulation > 1 else 1),
        activation_bytes=rows * (whole // sizes[CONTEXT] + cut // parts),
        cache_bytes=cache,
        pieces=config.accumulation,
        flops=flops * config.accumulation / sizes[CONTEXT],
        useful_flops=useful * config.accumulation / parts,
        data_bytes=_from_data(config, mesh, gradient, by_turn, sizes, random),
        context_bytes=_from_context(config, rows * _keys_values(config.model, sizes[MODEL]), sizes[CONTEXT]),
        model_bytes=_from_model(config, rows, sizes[MODEL]) / sizes[CONTEXT],
    )


def _cache_parts(model: ModelConfig, devices: int) -> int:
    """Among how many of the devices that share a layer keys and values are divided: by whole heads, or not at all."""
    attentions = [(kind, kind.attention) for kind in model.kinds]
    even = all(own is not None and own.shape(kind).num_kv_heads % devices == 0 for kind, own in attentions)
    return devices if even else 1


def _keys_values(model: ModelConfig, devices: int) -> int:
    """Bytes of the keys and values of one sequence on one of the devices that share a layer, of all tokens: what a
    window does not show is passed on too."""
    shapes = [kind.attention.shape(kind) for kind in model.kinds if kind.attention is not None]
    heads = (one.num_kv_heads // (1 if one.num_kv_heads % devices else devices) for one in shapes)
    features = sum(n * (one.key_size + one.value_size) for n, one in zip(heads, shapes, strict=True))
    return model.num_layers // model.period * model.max_length * features * jnp.dtype(model.dtype).itemsize


def _is_divided(scope: str, model: ModelConfig, devices: int) -> bool:
    """Whether those that share a layer divide its products, if their heads can be divided: those of the kernels that
    `training.sharding.ROLES` names. Each makes those of recurrences, convolutions and of a vocabulary that they do not
    divide."""
    if "blocks" in scope or "future." in scope:
        return not {"attention", "feed_forward", "feed_forward_before"}.isdisjoint(scope.split("/"))
    return model.vocab_size is not None and model.vocab_size % devices == 0


def _bytes_here(tree: Any) -> int:
    """Bytes on one device of a tree of shapes with shardings."""
    return sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(tree)
        if not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    )


def _from_data(
    config: RunConfig, mesh: MeshConfig, gradient: float, by_turn: float, sizes: Mapping[str, int], random: bool
) -> float:
    """Bytes of gradients summed in a ring, and of parameters gathered, where these are cut, forward and backward: of
    all that there are, or of those that every turn of the layers uses.

    They are cut over `data` alone; what is left of a gradient is summed over those that share a sequence.
    """
    data, context = sizes[DATA], sizes[CONTEXT]
    if mesh.fully_sharded:
        share = jnp.dtype(config.model.dtype).itemsize / 4  # XLA rounds before it gathers
        summed = share if mesh.rounded else 1
        ring = (2 * share + summed) * (data - 1) / data + 2 * summed * (context - 1) / context / data
        return config.accumulation * ring * by_turn
    devices = data * context
    once = config.accumulation > 1 and rows_are_alone(config, mesh, sizes[REPLICA]) and not random
    return 2 * (devices - 1) / devices * (gradient if once else config.accumulation * by_turn)


def _from_context(config: RunConfig, keys_values: int, devices: int) -> float:
    """Bytes of keys and values gathered forward and backward, and once more where they are recomputed, and of the sums
    of their gradients."""
    times = 4 if config.model.layers.remat == "full" else 3
    return config.accumulation * times * (devices - 1) / devices * keys_values


def _from_model(config: RunConfig, rows: int, devices: int) -> float:
    """Bytes of the stream summed after each sublayer, forward and backward, and once more where it is recomputed."""
    model = config.model
    stream = rows * model.max_length * model.d_model * jnp.dtype(model.dtype).itemsize
    times = 6 if config.model.layers.remat == "full" else 4
    return config.accumulation * model.num_layers * times * 2 * (devices - 1) / devices * stream


@functools.cache
def _kept(model: ModelConfig, objective: Objective, platform: str) -> tuple[int, int]:
    """Bytes that are saved for the backward pass of one sequence: (of the stream, of arrays that heads divide)."""
    params, _ = pure_model(model)

    def residuals(size):
        tokens = jax.ShapeDtypeStruct((size, model.max_length + 1), jnp.int32)
        with compiled_for(platform):
            kept = jax.eval_shape(lambda p, t: jax.vjp(lambda p: _total(model, objective, p, t), p)[1], params, tokens)
        return jax.tree.leaves(kept)

    # What grows with the batch is not a parameter.
    growth = [
        (a.shape, (math.prod(b.shape) - math.prod(a.shape)) * a.dtype.itemsize)
        for a, b in zip(residuals(1), residuals(2), strict=True)
    ]
    as_wide = sum(size for shape, size in growth if shape and shape[-1] == model.d_model)
    whole = as_wide - (_queries_keys_values(model) if platform == "tpu" and model.layers.remat == "dots" else 0)
    return whole, sum(size for _, size in growth) - whole


def _queries_keys_values(model: ModelConfig) -> int:
    """Bytes of the products of one sequence that make these and are as wide as the stream, in all layers."""
    if model.downsampling is not None:
        return 0
    widths: list[int] = []
    for kind in model.kinds:
        if (own := kind.attention) is not None:
            by_layer = {getattr(own.projection, role, role): own.shape(kind).widths[role] for role in own.roles}
            widths += [width for layer, width in by_layer.items() if layer is not None]
    arrays = widths.count(model.d_model) * model.num_layers // len(model.kinds)
    length = model.max_length + (model.memory_length or 0)
    return arrays * length * model.d_model * jnp.dtype(model.dtype).itemsize


@functools.cache
def _operations(model: ModelConfig, objective: Objective, rows: int) -> tuple[Mapping[str, float], float, bool]:
    """Operations of the gradient of so many sequences, (with what is computed again by scope, without in all), all
    scores counted, and whether it draws random numbers."""
    params, _ = pure_model(model)
    tokens = jax.ShapeDtypeStruct((rows, model.max_length + 1), jnp.int32)
    done = jax.make_jaxpr(jax.grad(lambda p, t: _total(model, objective, p, t)))(params, tokens)
    return scoped_flops(done.jaxpr), train_flops(model, rows), draws(done.jaxpr)


def _total(model: ModelConfig, objective: Objective, params: pure.Params, tokens: jax.Array) -> jax.Array:
    _, apply = pure_model(model)
    earlier = None if model.memory_length is None else apply(params, len(tokens), method="empty_memory")
    sums, _ = objective.segment_sums(apply, params, {"tokens": tokens}, jax.random.key(0), earlier)
    return sums.loss.sum()
