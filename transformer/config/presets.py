"""Named configurations."""

from transformer.config.activations import GLU, SiLU
from transformer.config.large_presets import LARGE_PRESETS
from transformer.config.model import ModelConfig
from transformer.config.norms import LayerNorm, RMSNorm
from transformer.config.objectives import MaskedToken
from transformer.config.rotary_positions import RoPE
from transformer.config.run import OptimizerConfig, RunConfig, TextConfig
from transformer.config.tokenizers import Char
from transformer.config.variant import ConfigError, nearest

_SCALE_FREE = LayerNorm(bias=False)

_TINY = ModelConfig(norm=_SCALE_FREE, num_layers=2, d_model=64, max_length=32)

PRESETS: dict[str, RunConfig] = {
    # nanoGPT's character model for a CPU (github.com/karpathy/nanoGPT, README): 4 layers, 0.80M parameters.
    "nanogpt-cpu": RunConfig(model=ModelConfig(norm=_SCALE_FREE)),
    # The same for a GPU (its train_shakespeare_char.py): 6 layers, 10.7M parameters.
    "nanogpt-gpu": RunConfig(
        model=ModelConfig(norm=_SCALE_FREE, num_layers=6, num_heads=6, d_model=384, max_length=256, dropout=0.2),
        steps=5000,
        batch_size=64,
        evaluate_every=500,
    ),
    # The sizes of a first look: about 10 seconds on two cores.
    "tiny": RunConfig(model=_TINY, steps=300, batch_size=8),
    # The same as an encoder that fills in hidden characters (Devlin et al. 2018).
    "masked": RunConfig(
        model=_TINY.replace(causal=False, position=RoPE()),
        data=TextConfig(tokenizer=Char(special=True)),
        objective=MaskedToken(),
        optimizer=OptimizerConfig(learning_rate=3e-3),
        steps=1000,
        batch_size=32,
    ),
    # nanogpt-cpu's size with the choices of Llama (Touvron et al. 2023).
    "llama-cpu": RunConfig(
        model=ModelConfig(norm=RMSNorm(), position=RoPE(), activation=GLU(gate=SiLU()), d_ff=344, tie_embeddings=False)
    ),
}


def preset(name: str) -> RunConfig:
    """The `RunConfig` of that name, one of `PRESETS` or of the larger `LARGE_PRESETS`.

    Raises:
      ConfigError: there is no such preset.
    """
    known = PRESETS | LARGE_PRESETS
    if name not in known:
        raise ConfigError(f"unknown preset {name!r}{nearest(name, known)}")
    return known[name]
