"""Named configurations."""

from transformer.config.activations import GLU, SiLU
from transformer.config.model import ModelConfig
from transformer.config.norms import LayerNorm, RMSNorm
from transformer.config.positions import RoPE
from transformer.config.run import RunConfig
from transformer.config.variant import ConfigError, nearest

_SCALE_FREE = LayerNorm(bias=False)

PRESETS: dict[str, RunConfig] = {
    # nanoGPT's character model for a CPU (github.com/karpathy/nanoGPT, README): 4 layers, 0.80M parameters.
    "nanogpt-cpu": RunConfig(model=ModelConfig(norm=_SCALE_FREE)),
    # The sizes of a first look: about 10 seconds on two cores.
    "tiny": RunConfig(
        model=ModelConfig(norm=_SCALE_FREE, num_layers=2, d_model=64, max_length=32), steps=300, batch_size=8
    ),
    # nanogpt-cpu's size with the choices of Llama (Touvron et al. 2023).
    "llama-cpu": RunConfig(
        model=ModelConfig(norm=RMSNorm(), position=RoPE(), activation=GLU(gate=SiLU()), d_ff=344, tie_embeddings=False)
    ),
}


def preset(name: str) -> RunConfig:
    """The `RunConfig` of that name.

    Raises:
      ConfigError: there is no such preset.
    """
    if name not in PRESETS:
        raise ConfigError(f"unknown preset {name!r}{nearest(name, PRESETS)}")
    return PRESETS[name]
