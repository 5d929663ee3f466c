"""A test of the tests: the code is broken in seventeen places, and the suite finds each."""

import inspect
import sys
import textwrap

import jax
import pytest

from transformer.analysis import counts
from transformer.functional import biases, masks
from transformer.functional import chunked_attention as chunked
from transformer.mixers.attention.backends import Chunked
from transformer.mixers.attention.layer import AttentionLayer
from transformer.models import build
from transformer.models import downsampling as shortening
from transformer.models.decoder import Decoder
from transformer.models.downsampling import Hourglass
from transformer.models.transformer import Transformer
from transformer.norms import norm
from transformer.norms.without_statistics import DyT
from transformer.positions.absolute import Sinusoidal
from transformer.positions.relative import ALiBi
from transformer.positions.rotary import RoPE
from transformer.residuals.residual import SingleStream
from transformer.residuals.scaled_branches import ReZero
from transformer.testing import properties, twins
from transformer.testing.subject import Subject, small

MUTANTS = {
    "an off-by-one in the cache position": (
        (Decoder, "empty_cache", "jnp.zeros(batch_size, jnp.int32)", "jnp.ones(batch_size, jnp.int32)"),
        {"position": Sinusoidal()},
        properties.cached,
    ),
    "a mask that leaks one step": (
        (masks.Causal, "__call__", ">= 0", ">= -1"),
        {},
        properties.causal,
    ),
    "ALiBi slopes of the wrong sign": (
        (biases.LinearDistance, "__call__", "-self.slopes_H", "self.slopes_H"),
        {"position": ALiBi()},
        twins.fades,
    ),
    "RoPE on values": (
        (AttentionLayer, "__call__", "_remember(k, v,", "_remember(k, here.key(v, x_BSD),"),
        {"position": RoPE()},
        twins.shifted,
    ),
    "a norm over the batch axis": (
        (norm, "layer_norm", "x32.mean(-1, keepdims=True)", "x32.mean(0, keepdims=True)"),
        {},
        properties.one_by_one,
    ),
    "segments that all begin at position 0": (
        (Decoder, "transform_segment", "(0 if self.config.relative else length)", "0"),
        {"position": Sinusoidal()},
        properties.followed,
    ),
    "means of tokens that come later": (
        (shortening, "_blocks", "factor - 1 if causal else 0", "0"),
        {"downsampling": Hourglass(factor=3, last=0)},
        properties.causal,
    ),
    "beams that see each other": (
        (Transformer, "mask_of", "mask & OwnBeams()", "mask"),
        {},
        properties.branched,
    ),
    "a dropped segment id in the chunked path": (
        (chunked, "_pad_tokens", "1), tokens)", "1), tokens._replace(segments=None))"),
        {"mixer.backend": Chunked(block=3)},
        properties.packing,
    ),
    "a variance of few bits": (
        (norm, "layer_norm", "(centred * centred)", "(centred * centred).astype(jnp.bfloat16).astype(jnp.float32)"),
        {},
        twins.precise,
    ),
    "a gate that starts at 1": (
        (ReZero, "parameters", "Constant(self.initial)", "Constant(1.0)"),
        {"residual": ReZero()},
        twins.begins_silent,
    ),
    "a dead parameter": (
        (DyT, "squash", 'params["alpha"]', "self.alpha"),
        {"norm": DyT()},
        properties.alive,
    ),
    "a residual taken after the norm": (
        (SingleStream, "__call__", "stream + (branch", 'norms["input"](stream) + (branch'),
        {},
        twins.passes_through,
    ),
    "weights dropped without a key": (
        (AttentionLayer, "attend", "key is not None", "(key := jax.random.key(0) if key is None else key) is not None"),
        {},
        twins.drops,
    ),
    "features dropped without a key": (
        (
            Transformer,
            "through_blocks",
            "config, tokens",
            "key = jax.random.key(0) if key is None else key; config, tokens",
        ),
        {},
        twins.drops,
    ),
    "one key for everything that is dropped": (
        (
            Transformer,
            "through_blocks",
            "config, tokens",
            "key = None if key is None else jax.random.key(0); config, tokens",
        ),
        {},
        twins.drops,
    ),
    "a FLOP formula that forgets the groups": (
        (counts, "scoped_flops", "math.prod(out)", "math.prod(out[1:])"),
        {},
        twins.counted,
    ),
}


def broken(owner, name, old, new):
    """A function with a piece of its text replaced."""
    function = getattr(owner, name)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(old) == 1, f"{old!r} is {source.count(old)} times in {name}"
    namespace = dict(vars(sys.modules[function.__module__]))
    exec(source.replace(old, textwrap.dedent(new)), namespace)
    return namespace[name]


def forget():
    """Forget the models of equal configs and their programs."""
    build._abstract_model.cache_clear()
    build._pure_model.cache_clear()
    jax.clear_caches()


@pytest.mark.parametrize(("place", "choices", "finds"), MUTANTS.values(), ids=MUTANTS)
def test_found(monkeypatch, place, choices, finds):
    """The property holds for the code as it is, and fails for the broken one."""
    config = small(**choices)
    finds(Subject(config))
    forget()
    monkeypatch.setattr(place[0], place[1], broken(*place))
    with pytest.raises(AssertionError):
        finds(Subject(config))
    monkeypatch.undo()
    forget()
