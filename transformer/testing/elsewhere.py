"""Compiles models for devices that are not here: what a compiler refuses is found before there are any."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import SingleDeviceSharding

from transformer.analysis.compiled import compile_lowered, compile_step
from transformer.analysis.hardware import Topology
from transformer.core.arrays import compiled_for
from transformer.core.errors import ConfigError
from transformer.models.build import pure_model
from transformer.models.config import ModelConfig
from transformer.runs.config import RunConfig, grid
from transformer.runs.mesh import MeshConfig
from transformer.testing.check import Checked
from transformer.testing.subject import LENGTH, small
from transformer.training.program import make_program

MESHES = {
    "two replicas": (2, MeshConfig(replica=1, data=1)),
    "2 x 2": (1, MeshConfig(replica=1, data=2, model=2)),
}
"""Replicas, and how one device or four share them."""
SIZES = {"mixer.num_kv_heads": None, "vocab_size": 32, "dtype": "bfloat16"}
"""What four devices can divide, in the numbers of accelerators."""


def check_elsewhere(topology: str, choices: Mapping[str, Any]) -> Checked:
    """Compile steps of training, of two decoders on one device and of one on four; an encoder's gradient; decoding.

    Nothing is run. A choice that is refused before compilation, in one line, has not failed.
    """
    checked, devices = Checked(choices), Topology.named(topology).devices()
    for context in ("decoder", "encoder"):
        try:
            config = small(causal=context == "decoder", **SIZES).replace(dict(choices))
        except ConfigError as error:
            checked.refused[context] = str(error)
            continue
        if context == "encoder":
            checked.run(context, "gradient", lambda config=config: _compile(gradient(config), devices[0]))
            continue
        run = RunConfig(model=config, batch_size=4, steps=2, steps_per_dispatch=1)
        for name, (replicas, mesh) in MESHES.items():
            try:
                program = make_program(run, grid(replicas), mesh, devices=devices[: 4 if mesh.model > 1 else 1])
            except ConfigError as error:
                checked.refused[name] = str(error)
                continue
            checked.run(name, "step", lambda run=run, program=program: compile_step(run, program))
        checked.run(context, "decoding", lambda config=config: _compile(decoding(config), devices[0]))
    return checked


def _compile(program: tuple[Callable[..., Any], Any], device: Any) -> None:
    function, arguments = program
    there = SingleDeviceSharding(device)
    shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=there), arguments)
    with compiled_for(device.platform):
        compile_lowered(jax.jit(function).lower(*shapes), device)


def gradient(config: ModelConfig) -> tuple[Callable[..., Any], Any]:
    """(gradient of the mean of squared logits, shapes of its arguments)."""
    params, apply = pure_model(config)

    def loss(params, tokens_BL):
        logits_BLV, penalty = apply(params, tokens_BL, with_penalty=True)
        return jnp.square(logits_BLV.astype(jnp.float32)).mean() + penalty

    return jax.grad(loss), (params, jax.ShapeDtypeStruct((4, LENGTH), jnp.int32))


def decoding(config: ModelConfig) -> tuple[Callable[..., Any], Any]:
    """(logits and cache after one more token, shapes of its arguments)."""
    params, apply = pure_model(config)
    cache = jax.eval_shape(lambda params: apply(params, 4, LENGTH, method="start"), params)

    def read(params, tokens_BL, cache):
        return apply(params, tokens_BL, cache, method="extend")

    return read, (params, jax.ShapeDtypeStruct((4, 1), jnp.int32), cache)
