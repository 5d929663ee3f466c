"""What bfloat16 leaves of gradients that are sums over many tokens."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.embeddings.embedding import Head
from transformer.embeddings.head_transforms import DenseTransform
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.gates import HeadScale
from transformer.mixers.recurrent.rg_lru import RGLRU
from transformer.models.build import initial_params, pure_model
from transformer.models.config import ModelConfig
from transformer.norms.without_statistics import Shift
from transformer.objectives.objective import NextToken
from transformer.residuals.scaled_branches import Fixup

BIASED = Attention(num_heads=2, bias=("query", "key", "value", "out"), parts=(HeadScale(),))
MODELS = {
    "biases": {"mixer": BIASED, "feed_forward.bias": True, "head": Head(tied=False, transform=DenseTransform())},
    "fixup": {"mixer": BIASED, "residual": Fixup(), "norm": Shift()},
    "rg_lru": {"mixer": RGLRU(blocks=2), "position": None},
}


@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_parameters_that_stand_at_every_token_are_whole(name):
    """Of 8,192 tokens that nearly all say the same; a sum in bfloat16 keeps a half or a quarter of them."""
    rng, vocab_size, shape = np.random.default_rng(0), 16, (128, 65)
    tokens = np.where(rng.random(shape) < 0.9, 0, rng.integers(0, vocab_size, shape)).astype(np.int32)
    config = ModelConfig(vocab_size=vocab_size, num_layers=1, d_model=16, max_length=64).replace(MODELS[name])
    params = initial_params(config, jax.random.key(0))
    params = jax.tree.map(lambda a: a + jnp.asarray(0.05 * rng.normal(size=a.shape), jnp.float32), params)

    def gradient(dtype):
        _, apply = pure_model(config.replace(dtype=dtype))
        return jax.jit(jax.grad(lambda own: NextToken()(apply, own, {"tokens": tokens}, None).loss.sum()))(params)

    exact, rounded = (jax.tree.leaves_with_path(gradient(dtype)) for dtype in ("float32", "bfloat16"))
    largest = max(float(jnp.linalg.norm(leaf)) for _, leaf in exact)
    for (path, expected), (_, found) in zip(exact, rounded, strict=True):
        square = float((expected**2).sum())
        if square > (1e-3 * largest) ** 2:
            assert float((expected * found).sum()) / square == pytest.approx(1, abs=0.1), jax.tree_util.keystr(path)
