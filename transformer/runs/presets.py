"""Named configurations."""

from transformer.activations.activation import GLU, SiLU
from transformer.core.errors import ConfigError, nearest
from transformer.embeddings.embedding import Head
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.mixers.attention.attention import Attention
from transformer.models.config import ModelConfig
from transformer.norms.norm import LayerNorm, RMSNorm
from transformer.objectives.tokens import MaskedToken
from transformer.positions.rotary import RoPE
from transformer.runs.config import RunConfig
from transformer.runs.data import TextConfig
from transformer.runs.large_presets import LARGE_PRESETS
from transformer.runs.optimizer import OptimizerConfig
from transformer.runs.tokenizers import Char

_SCALE_FREE = LayerNorm(bias=False)


_TINY = ModelConfig(norm=_SCALE_FREE, num_layers=2, d_model=64, max_length=32)


PRESETS: dict[str, RunConfig] = {
    # nanoGPT's character model for a CPU (github.com/karpathy/nanoGPT, README): 4 layers, 0.80M parameters.
    "nanogpt-cpu": RunConfig(model=ModelConfig(norm=_SCALE_FREE)),
    # The same for a GPU (its train_shakespeare_char.py): 6 layers, 10.7M parameters, which learn the text by heart.
    "nanogpt-gpu": RunConfig(
        model=ModelConfig(
            norm=_SCALE_FREE,
            num_layers=6,
            mixer=Attention(num_heads=6, dropout=0.2),
            d_model=384,
            max_length=256,
            dropout=0.2,
        ),
        steps=5000,
        batch_size=64,
        evaluate_every=500,
    ),
    # For a first look: about 10 seconds on two cores.
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
        model=ModelConfig(
            norm=RMSNorm(),
            position=RoPE(),
            feed_forward=FeedForward(activation=GLU(gate=SiLU()), d_ff=344),
            head=Head(tied=False),
        )
    ),
}


def preset(name: str) -> RunConfig:
    """The `RunConfig` with that name, one of `PRESETS` or of the larger `LARGE_PRESETS`.

    Raises:
      ConfigError: there is no such preset.
    """
    known = PRESETS | LARGE_PRESETS
    if name not in known:
        raise ConfigError(f"unknown preset {name!r}{nearest(name, known)}")
    return known[name]
