"""Choices of attention that do not fit each other, or the model."""

import pytest

from transformer.core.errors import ConfigError
from transformer.mixers.attention.backends import Chunked
from transformer.mixers.attention.gates import ValueGate
from transformer.mixers.attention.head_norms import QKNorm, ValueNorm
from transformer.mixers.attention.heads import LatentHeads
from transformer.mixers.attention.normalizers import LinearNormalizer
from transformer.mixers.attention.score_mods import LogLength
from transformer.mixers.attention.sharing import SharedKeyValues, ValueEmbeddings, ValueResidual
from transformer.mixers.attention.sparsity import Linformer, SlidingWindow
from transformer.mixers.attention.synthesizers import DenseSynthesizer, RandomSynthesizer
from transformer.positions.contextual import Contextual, Forgetting
from transformer.positions.relative import ALiBi, RelativeKeys
from transformer.positions.rotary import RoPE

REFUSED = {
    "mixer.sharing: the first layer": {"mixer.sharing": SharedKeyValues()},
    "mixer.heads: rope": {"mixer.heads": RandomSynthesizer(), "position": RoPE()},
    "mixer.heads: dense_synthesizer": {"mixer.heads": DenseSynthesizer(length=5)},
    "mixer.parts: queries and keys of latent": {"mixer.heads": LatentHeads(), "mixer.parts": (QKNorm(),)},
    "mixer.num_kv_heads: in latent": {"mixer.heads": LatentHeads(), "mixer.num_kv_heads": 1},
    "model.position: contextual": {"position": Contextual(), "causal": False},
    "mixer.sparsity: linformer": {"mixer.sparsity": Linformer()},
    "mixer.sparsity: forgetting sums": {"position": Forgetting(), "mixer.sparsity": SlidingWindow(3, sinks=1)},
    "model.position: chunked": {"position": RelativeKeys(values=True), "mixer.backend": Chunked()},
    "model.memory_length: the tokens": {"mixer.sharing": ValueEmbeddings(), "memory_length": 3},
    "head.score_mod: log_length": {"head.score_mod": LogLength()},
    "mixer.parts: latent has no projection": {"mixer.heads": LatentHeads(), "mixer.parts": (ValueGate(),)},
    "mixer.parts: latent makes no values": {"mixer.heads": LatentHeads(), "mixer.parts": (ValueNorm(),)},
    "mixer.sharing: latent makes no values": {"mixer.heads": LatentHeads(), "mixer.sharing": ValueResidual()},
    "mixer.normalizer: linear is of features": {"mixer.heads": LatentHeads(), "mixer.normalizer": LinearNormalizer()},
    "mixer.sparsity: the mixtures": {"mixer.sparsity": Linformer(), "causal": False, "position": ALiBi()},
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be(message, config):
    """One line before anything is built."""
    with pytest.raises(ConfigError, match=f"^{message.replace('(', '.')}"):
        config().replace(REFUSED[message])
