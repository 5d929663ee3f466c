"""Published sizes, too large for a laptop: for planning, and for training on larger machines."""

from transformer.activations.activation import GLU, SiLU
from transformer.mixers.attention.backends import Chunked
from transformer.models.config import ModelConfig
from transformer.models.layers import Scanned
from transformer.norms.norm import LayerNorm, RMSNorm
from transformer.positions.rotary import RoPE
from transformer.runs.config import RunConfig
from transformer.runs.optimizer import OptimizerConfig

_LLAMA = ModelConfig(
    vocab_size=128_256,
    max_length=8192,
    num_layers=32,
    num_heads=32,
    num_kv_heads=8,
    d_model=4096,
    d_ff=14_336,
    norm=RMSNorm(eps=1e-5),
    position=RoPE(base=500_000.0),
    activation=GLU(gate=SiLU()),
    tie_embeddings=False,
    attention=Chunked(block=1024),
    layers=Scanned(remat="full"),
    dtype="bfloat16",
)


LARGE_PRESETS: dict[str, RunConfig] = {
    # GPT-2 (Radford et al. 2019), its vocabulary filled up to a multiple of 64; 0.26M tokens a step.
    "gpt2-124m": RunConfig(
        model=ModelConfig(
            vocab_size=50_304,
            max_length=1024,
            num_layers=12,
            num_heads=12,
            d_model=768,
            norm=LayerNorm(),
            attention_bias=("query", "key", "value", "out"),
            feed_forward_bias=True,
            layers=Scanned(remat="dots"),
            dtype="bfloat16",
        ),
        optimizer=OptimizerConfig(learning_rate=6e-4, warmup_steps=2000),
        steps=100_000,
        batch_size=256,
    ),
    # Llama 3 (Grattafiori et al. 2024, table 3), 8B and 70B; 4M tokens a step.
    "llama-8b": RunConfig(
        model=_LLAMA,
        optimizer=OptimizerConfig(learning_rate=3e-4, warmup_steps=8000),
        steps=1_000_000,
        batch_size=512,
    ),
    "llama-70b": RunConfig(
        model=_LLAMA.replace(num_layers=80, num_heads=64, d_model=8192, d_ff=28_672),
        optimizer=OptimizerConfig(learning_rate=1.5e-4, warmup_steps=8000),
        steps=1_000_000,
        batch_size=512,
    ),
}
