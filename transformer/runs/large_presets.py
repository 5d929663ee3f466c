"""Published sizes, too large for a laptop: for planning, and for training on larger machines."""

from transformer.activations.activation import GLU, SiLU
from transformer.embeddings.embedding import Head
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.backends import Fused
from transformer.models.config import ModelConfig
from transformer.models.stack import Scanned
from transformer.norms.norm import LayerNorm, RMSNorm
from transformer.positions.rotary import RoPE
from transformer.runs.config import RunConfig
from transformer.runs.optimizer import OptimizerConfig

_LLAMA = ModelConfig(
    vocab_size=128_256,
    max_length=8192,
    num_layers=32,
    mixer=Attention(num_heads=32, num_kv_heads=8, backend=Fused()),
    feed_forward=FeedForward(d_ff=14_336, activation=GLU(gate=SiLU())),
    d_model=4096,
    norm=RMSNorm(eps=1e-5),
    position=RoPE(base=500_000.0),
    head=Head(tied=False),
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
            mixer=Attention(num_heads=12, bias=("query", "key", "value", "out"), backend=Fused()),
            feed_forward=FeedForward(bias=True),
            d_model=768,
            norm=LayerNorm(),
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
        model=_LLAMA.replace({"mixer.num_heads": 64, "feed_forward.d_ff": 28_672}, num_layers=80, d_model=8192),
        optimizer=OptimizerConfig(learning_rate=1.5e-4, warmup_steps=8000),
        steps=1_000_000,
        batch_size=512,
    ),
}
