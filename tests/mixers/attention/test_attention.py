"""Slots of attention against the formulas of their papers, written out."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.arrays import dropout
from transformer.core.modules import split
from transformer.core.parameters import Normal
from transformer.core.values import ConfigError
from transformer.functional.convolution import convolve, convolve_slots
from transformer.functional.masks import Causal, Full, Padding, Segment, Tokens
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.backends import Chunked
from transformer.mixers.attention.base import ScoreMod
from transformer.mixers.attention.cross_attention import CrossAttention
from transformer.mixers.attention.gates import HeadScale, ValueGate
from transformer.mixers.attention.head_norms import QKNorm, ValueNorm
from transformer.mixers.attention.heads import DifferentialHeads, LatentHeads
from transformer.mixers.attention.projections import ConstantScale
from transformer.mixers.attention.score_mods import LogLength
from transformer.mixers.attention.sharing import ScoreResidual, SharedKeyValues, ValueEmbeddings, ValueResidual
from transformer.mixers.attention.short_convolution import ShortConvolution
from transformer.mixers.attention.sparsity import Linformer, SlidingWindow
from transformer.mixers.attention.synthesizers import DenseSynthesizer, RandomSynthesizer
from transformer.mixers.fourier import fourier_mix
from transformer.mixers.mixer import Context, Shared, Source
from transformer.models.config import ModelConfig
from transformer.models.encoder_decoder import EncoderDecoderConfig
from transformer.models.language_model import LanguageModel
from transformer.models.pattern import Alternate
from transformer.norms.norm import RMSNorm, rms_norm
from transformer.positions.contextual import Contextual, Forgetting
from transformer.positions.relative import FIRE, KERPLE, ALiBi, RelativeKeys, T5Bias, TransformerXL
from transformer.positions.rotary import RoPE

LENGTH, D = 6, 8
SIZES = {"vocab_size": 11, "max_length": LENGTH, "d_model": D, "num_layers": 2}
HEADS = Attention(num_heads=2)
X = jnp.asarray(np.random.default_rng(0).normal(size=(2, LENGTH, D)), jnp.float32)


def config(mixer=HEADS, **choices):
    return ModelConfig(**SIZES | {"position": None, "initializer": Normal(0.5)} | choices, mixer=mixer)


def attention(position=None, causal=True, **choices):
    """A layer of attention with these choices."""
    mixer = Attention(num_heads=2, **choices)
    return mixer.build(config(mixer, position=position, causal=causal), key=jax.random.key(0))


def run(module, x=X, mask=None, **more):
    tokens = Tokens.at(jnp.arange(LENGTH))
    return module(x, context=Context(tokens, Causal() if mask is None else mask, **more))


def heads(x):
    return np.asarray(x).reshape(*x.shape[:2], 2, -1)


def mixed(scores_BHLS, v_BSHK, allowed=None):
    """softmax(scores) V, heads side by side."""
    allowed = np.tri(LENGTH, dtype=bool) if allowed is None else allowed
    weights = jax.nn.softmax(jnp.where(allowed, scores_BHLS, -jnp.inf))
    return jnp.einsum("bhls,bshk->blhk", weights, v_BSHK).reshape(2, LENGTH, -1)


def test_latent_heads_are_heads_whose_keys_and_values_come_of_one_vector():
    """The products moved into queries and outputs change nothing; a rotary key is shared by all heads."""
    module = attention(heads=LatentHeads(rank=3, rotary=4), position=RoPE())
    position, params = RoPE(), module.params["heads"]()
    q = module.query(X).reshape(2, LENGTH, 2, 8)
    k, places = module.key(X), jnp.arange(LENGTH)[None]
    latent = rms_norm(k[..., 4:], scale_D=params["norm"])
    keys, values = (jnp.einsum("bsr,hrk->bshk", latent, params[name]) for name in ("keys", "values"))
    shared = position.to_key(k[:, :, None, :4], places, {})[:, :, 0]
    scores = jnp.einsum("blhk,bshk->bhls", q[..., 4:], keys)
    scores += jnp.einsum("blhk,bsk->bhls", position.to_query(q[..., :4], places, {}), shared)
    expected = module.out(mixed(scores / np.sqrt(4 + 4), values))
    np.testing.assert_allclose(run(module)[0], expected, rtol=2e-4, atol=1e-5)


def test_the_latent_vector_is_all_that_is_kept():
    """The cache has one head of rank + rotary features and values of rank, whatever the number of heads."""
    model = LanguageModel(config(Attention(num_heads=2, heads=LatentHeads(rank=3, rotary=4))), key=jax.random.key(0))
    layer = model.start(2, LENGTH).layers[0]
    assert layer is not None
    assert (layer.keys_XKS.shape, layer.values_XSK.shape) == ((2, 7, LENGTH), (2, LENGTH, 3))


@pytest.mark.parametrize("num_kv_heads", [None, 1])
@pytest.mark.parametrize("position", [T5Bias(), T5Bias(shared=False), KERPLE(), FIRE(), ALiBi()], ids=str)
def test_each_map_of_differential_heads_has_its_own_bias(position, num_kv_heads):
    """A bias of a number for each of two maps a head, all of them trained; and later tokens have no say."""
    mixer = Attention(num_heads=2, heads=DifferentialHeads(), num_kv_heads=num_kv_heads)
    params, apply = split(LanguageModel(config(mixer, position=position, num_layers=1), key=jax.random.key(0)))
    tokens = jnp.asarray([[3, 1, 4, 1, 5, 9]])
    gradients = jax.grad(lambda params: (apply(params, tokens) ** 2).sum())(params)
    own = [g for path, g in jax.tree.leaves_with_path(gradients) if "'position'" in jax.tree_util.keystr(path)]
    numbers = [np.abs(g).reshape(-1, g.shape[-1]).max(0) for g in own if g.shape and g.shape != (FIRE().hidden,)]
    assert all(number.shape == (4,) and number.all() for number in numbers)
    changed = apply(params, tokens.at[0, -1].set(2))
    np.testing.assert_allclose(changed[:, :-1], apply(params, tokens)[:, :-1], atol=1e-5)


@pytest.mark.parametrize("dot_product", [False, True])
def test_dense_synthesizer(dot_product):
    """The scores of a token are a network of it; with `dot_product` those of queries and keys beside them."""
    module = attention(heads=DenseSynthesizer(length=LENGTH, dot_product=dot_product))
    projected = module.query(X)
    hidden = jax.nn.relu(projected[..., :D].reshape(2, LENGTH, 2, 4))
    scores = jnp.einsum("blhk,hkn->bhln", hidden, module.params["heads"]()["scores"])
    if dot_product:
        scores += jnp.einsum("blhk,bshk->bhls", heads(projected[..., D:]), heads(module.key(X))) / 2
    np.testing.assert_allclose(run(module)[0], module.out(mixed(scores, heads(module.value(X)))), rtol=1e-4, atol=1e-5)


def test_a_dense_synthesizer_in_rows_and_columns():
    """The score of position p is the product of an entry for its row and one for its column."""
    module = attention(heads=DenseSynthesizer(length=LENGTH, columns=2))
    hidden, params = jax.nn.relu(heads(module.query(X))), module.params["heads"]()
    rows, columns = (np.asarray(jnp.einsum("blhk,hkn->bhln", hidden, params[n])) for n in ("rows", "columns"))
    scores = np.stack([rows[..., p // 2] * columns[..., p % 2] for p in range(LENGTH)], -1)
    np.testing.assert_allclose(run(module)[0], module.out(mixed(scores, heads(module.value(X)))), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [DenseSynthesizer, RandomSynthesizer])
def test_weighted_synthesizers(kind):
    """α · synthetic scores + (1 - α) · those of queries and keys; α is trained and begins at one half."""
    module = attention(heads=kind(length=LENGTH, dot_product=True, weighted=True))
    assert module.params["heads"]()["share"] == 0
    ends = {}
    for name, share in {"synthetic": 40.0, "products": -40.0, "both": 1.0}.items():
        module.params["heads"].share[...] = jnp.float32(share)
        q, k, _ = module.project(X, "query", "key", "value")
        places = jnp.arange(LENGTH)[None]
        keys, _ = module.keys_values(k, module.value(X), places)
        ends[name] = jnp.einsum("blhk,bshk->bhls", module.queries(q, places), keys)
    share = jax.nn.sigmoid(1.0)
    np.testing.assert_allclose(
        ends["both"], share * ends["synthetic"] + (1 - share) * ends["products"], rtol=1e-4, atol=1e-5
    )
    products = jnp.einsum("blhk,bshk->bhls", heads(q[..., -D:]), heads(k)) / 2
    np.testing.assert_allclose(ends["products"], products, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rank", [None, 2])
def test_random_synthesizer(rank):
    """Scores are a trained matrix, or the product of two, and no token has a say."""
    module = attention(heads=RandomSynthesizer(length=LENGTH, rank=rank))
    params = module.params["heads"]()
    scores = params["queries"] if rank is None else jnp.einsum("hlr,hsr->hls", params["queries"], params["keys"])
    scores = jnp.broadcast_to(scores, (2, *scores.shape))
    np.testing.assert_allclose(run(module)[0], module.out(mixed(scores, heads(module.value(X)))), rtol=1e-4, atol=1e-5)
    assert not hasattr(module, "query")


def test_linformer_of_full_rank_is_attention():
    """With identities for its mixtures it attends to the tokens; padding is in no mixture."""
    module, plain = attention(sparsity=Linformer(rank=LENGTH, length=LENGTH), causal=False), attention(causal=False)
    for name in ("keys", "values"):
        getattr(module.params["sparsity"], name)[...] = jnp.eye(LENGTH)
    np.testing.assert_allclose(run(module, mask=Full())[0], run(plain, mask=Full())[0], rtol=1e-5, atol=1e-6)
    module = attention(sparsity=Linformer(rank=2, length=LENGTH), causal=False)
    valid = jnp.arange(LENGTH)[None] < 4
    tokens = Tokens.at(jnp.arange(LENGTH), valid=valid)
    changed = X.at[:, 4:].add(1.0)
    outputs = [module(x, context=Context(tokens, Full() & Padding()))[0][:, :4] for x in (X, changed)]
    np.testing.assert_array_equal(*outputs)


def test_scores_of_the_layer_before_are_added():
    """softmax(q·k/√K + scores before), and the sum is handed on."""
    module = attention(sharing=ScoreResidual())
    before = jnp.asarray(np.random.default_rng(1).normal(size=(2, 2, LENGTH, LENGTH)), jnp.float32)
    out, outcome = run(module, shared=Shared(scores=before), first=False)
    scores = jnp.einsum("blhk,bshk->bhls", heads(module.query(X)), heads(module.key(X))) / 2 + before
    np.testing.assert_allclose(out, module.out(mixed(scores, heads(module.value(X)))), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(outcome.shared.scores, scores, rtol=1e-5, atol=1e-5)


def test_values_of_the_first_layer_are_mixed_in():
    """½ V + ½ V₁; in the first layer V₁ is its own; V₁ is handed on."""
    module = attention(sharing=ValueResidual())
    first = jnp.ones((2, LENGTH, 2, 4))
    plain = attention()
    np.testing.assert_allclose(run(module, shared=Shared())[0], run(plain)[0], rtol=1e-5, atol=1e-6)
    out, outcome = run(module, shared=Shared(values=first), first=False)
    q, k, v = (heads(layer(X)) for layer in (module.query, module.key, module.value))
    scores = jnp.einsum("blhk,bshk->bhls", q, k) / 2
    np.testing.assert_allclose(out, module.out(mixed(scores, 0.5 * v + 0.5)), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(outcome.shared.values, first)


def test_values_of_a_table_of_tokens_are_mixed_in():
    """½ V + ½ E[token] in every layer, whatever the layers before it; a vector without a token is refused."""
    table = jnp.asarray(np.random.default_rng(1).normal(size=(2, LENGTH, 2, 4)), jnp.float32)
    module = attention(sharing=ValueEmbeddings())
    out, outcome = run(module, shared=Shared(token_values=table, values=jnp.ones((2, LENGTH, 2, 4))), first=False)
    q, k, v = (heads(layer(X)) for layer in (module.query, module.key, module.value))
    scores = jnp.einsum("blhk,bshk->bhls", q, k) / 2
    np.testing.assert_allclose(out, module.out(mixed(scores, 0.5 * v + 0.5 * table)), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(outcome.shared.token_values, table)
    with pytest.raises(ConfigError, match="value_embeddings has no tokens here"):
        run(module)
    model = LanguageModel(config(Attention(num_heads=2, sharing=ValueEmbeddings())), key=jax.random.key(0))
    rows = model.value_embedding(jnp.array([[3, 3, 5]]))
    np.testing.assert_array_equal(rows[0, 0], model.value_embedding.table[3].reshape(2, 4))
    np.testing.assert_array_equal(rows[0, 0], rows[0, 1])


def test_forgetting():
    """A key weighs as much as its score says, times the gates of all tokens after it up to the query."""
    module = attention(position=Forgetting())
    params = module.position()
    gates = jax.nn.sigmoid(X @ params["forget"] + params["forget_bias"])
    kept = np.ones((2, 2, LENGTH, LENGTH))
    for query in range(LENGTH):
        for key in range(query):
            kept[:, :, query, key] = np.prod(gates[:, key + 1 : query + 1], 1)
    scores = jnp.einsum("blhk,bshk->bhls", heads(module.query(X)), heads(module.key(X))) / 2 + np.log(kept)
    expected = module.out(mixed(scores, heads(module.value(X))))
    np.testing.assert_allclose(run(module)[0], expected, rtol=1e-4, atol=1e-5)


def test_contextual_positions():
    """The distance of a key is the sum of the gates up to the query, and between whole distances the score is mixed."""
    module = attention(position=Contextual(limit=2))
    q, k, table = heads(module.query(X)), heads(module.key(X)), np.asarray(module.position()["table"])
    scores = np.array(jnp.einsum("blhk,bshk->bhls", q, k) / 2)
    gates, added = np.asarray(jax.nn.sigmoid(scores)), np.zeros(scores.shape)
    for query in range(LENGTH):
        for key in range(query + 1):
            place = np.minimum(gates[:, :, query, key : query + 1].sum(-1), 2)
            low = np.floor(place).astype(int)
            vector = (
                table[low] * (low + 1 - place)[..., None] + table[np.minimum(low + 1, 2)] * (place - low)[..., None]
            )
            added[:, :, query, key] = (vector * q[:, query]).sum(-1) / 2
    expected = module.out(mixed(scores + added, heads(module.value(X))))
    np.testing.assert_allclose(run(module)[0], expected, rtol=1e-4, atol=1e-5)


def test_distances_have_values():
    """Σ weight · (v + a), with a vector of the clipped distance (Shaw et al. 2018, equation 3), under dropout too."""
    module = attention(position=RelativeKeys(limit=2, values=True), dropout=0.4)
    keys, values = (np.asarray(module.position()[name]) for name in ("table", "values"))
    places = np.clip(np.arange(LENGTH) - np.arange(LENGTH)[:, None], -2, 2) + 2
    q, k, v = (heads(layer(X)) for layer in (module.query, module.key, module.value))
    scores = (jnp.einsum("blhk,bshk->bhls", q, k) + jnp.einsum("blhk,lsk->bhls", q, keys[places])) / 2
    weights = jax.nn.softmax(jnp.where(np.tri(LENGTH, dtype=bool), scores, -jnp.inf))
    key = jax.random.key(3)
    dropped = dropout(weights[:, :, None], rate=0.4, key=key)[:, :, 0]  # (B, G, H/G, L, S), as attention drops them
    for drop, own in ((None, weights), (key, dropped)):
        out = jnp.einsum("bhls,bshk->blhk", own, v) + jnp.einsum("bhls,lsk->blhk", own, values[places])
        tokens = Tokens.at(jnp.arange(LENGTH))
        found, _ = module(X, context=Context(tokens, Causal()), key=drop)
        np.testing.assert_allclose(found, module.out(out.reshape(2, LENGTH, -1)), rtol=1e-4, atol=1e-5)


@dataclass(frozen=True)
class Nearness(ScoreMod):
    """s - ½ |i - j| in the first head, s in others."""

    positional = True

    def __call__(self, scores, queries=None, keys=None):
        distance_BLS = jnp.abs(queries.positions[:, :, None] - keys.positions[:, None]).astype(jnp.float32)
        return scores - jnp.where(jnp.arange(2) == 0, 0.5, 0.0)[:, None, None] * distance_BLS[:, None]


@pytest.mark.parametrize("backend", [None, Chunked(block=2)], ids=str)
def test_a_score_may_depend_on_head_and_positions(backend):
    """A function of scores, heads, queries and keys, exact and in blocks; cross-attention has none of positions."""
    module = attention(score_mod=Nearness(), backend=backend)
    distance = np.abs(np.arange(LENGTH)[:, None] - np.arange(LENGTH))
    scores = jnp.einsum("blhk,bshk->bhls", heads(module.query(X)), heads(module.key(X))) / 2
    scores -= np.array([0.5, 0])[:, None, None] * distance
    np.testing.assert_allclose(run(module)[0], module.out(mixed(scores, heads(module.value(X)))), rtol=1e-4, atol=1e-5)
    mixers = [Attention(num_heads=2, score_mod=score_mod) for score_mod in (Nearness(), None)]
    crossing, plain = (CrossAttention(mixer, config(mixer), key=jax.random.key(0)) for mixer in mixers)
    tokens = Tokens.at(jnp.arange(LENGTH))
    context = Context(tokens, source=Source(tokens, X))
    np.testing.assert_array_equal(crossing(X, context=context)[0], plain(X, context=context)[0])


def test_scores_grow_with_the_logarithm_of_the_length():
    """Up to the length of training nothing changes; the n-th token has log n / log trained times its scores."""
    module, plain = attention(score_mod=LogLength(trained=4)), attention()
    np.testing.assert_allclose(run(module)[0][:, :4], run(plain)[0][:, :4], rtol=1e-5, atol=1e-6)
    scores = jnp.einsum("blhk,bshk->bhls", heads(module.query(X)), heads(module.key(X))) / 2
    scores *= np.maximum(np.log(np.arange(1, LENGTH + 1)) / np.log(4), 1)[:, None]
    np.testing.assert_allclose(run(module)[0], module.out(mixed(scores, heads(module.value(X)))), rtol=1e-4, atol=1e-5)


def test_gated_and_normalized_values():
    """norm(xV ⊙ σ(xG)) is what the weights mix (Qiu et al. 2025, G2; Zhuo et al. 2025)."""
    module = attention(parts=(ValueGate(), ValueNorm(RMSNorm())))
    gate = jax.nn.sigmoid(X @ module.parts["value_gate"].kernel[...])
    v = rms_norm(heads(module.value(X) * gate), scale_D=jnp.ones(4))
    scores = jnp.einsum("blhk,bshk->bhls", heads(module.query(X)), heads(module.key(X))) / 2
    np.testing.assert_allclose(run(module)[0], module.out(mixed(scores, v)), rtol=1e-4, atol=1e-5)


def test_sinks_are_seen_from_everywhere():
    """A window of two and the first token."""
    module = attention(sparsity=SlidingWindow(2, sinks=1))
    distance = np.arange(LENGTH)[:, None] - np.arange(LENGTH)
    allowed = (distance >= 0) & ((distance < 2) | (np.arange(LENGTH) == 0))
    scores = jnp.einsum("blhk,bshk->bhls", heads(module.query(X)), heads(module.key(X))) / 2
    expected = module.out(mixed(scores, heads(module.value(X)), allowed))
    np.testing.assert_allclose(run(module)[0], expected, rtol=1e-4, atol=1e-5)


PRODUCTS = [RelativeKeys(limit=2), TransformerXL(limit=2), Contextual(limit=2)]


def enlarged(module):
    """A layer whose trained distances count for much."""
    for name, values in module.position().items():
        getattr(module.position, name)[...] = 20 * values
    return module


@pytest.mark.parametrize("scale_bias", [False, True])
@pytest.mark.parametrize("position", PRODUCTS, ids=str)
def test_a_factor_on_scores_is_one_on_queries(position, scale_bias):
    """What queries have for distances has the factor of q·k, once (Shaw et al. 2018, equation 4)."""
    choices = {"position": position, "scale_bias": scale_bias}
    whole, module = (enlarged(attention(scale=ConstantScale(factor), **choices)) for factor in (1.0, 0.3))
    whole.query.kernel[...] = 0.3 * whole.query.kernel[...]
    np.testing.assert_allclose(run(module)[0], run(whole)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("position", PRODUCTS, ids=str)
def test_a_synthesizer_without_scores_of_its_own_is_attention(position):
    """Beside scores of 0 the product of queries and keys has its factor, and so have distances."""
    heads = RandomSynthesizer(length=LENGTH, dot_product=True)
    plain, module = (enlarged(attention(position=position, **own)) for own in ({}, {"heads": heads}))
    module.params["heads"].queries[...] = jnp.zeros_like(module.params["heads"].queries[...])
    np.testing.assert_allclose(run(module)[0], run(plain)[0], rtol=1e-4, atol=1e-5)


def test_shared_keys_and_values_have_no_cache():
    """A layer that reads those before it has neither projections nor slots."""
    shared = config(pattern=(Alternate("mixer.sharing", (None, SharedKeyValues())),))
    params, apply = split(LanguageModel(shared, key=jax.random.key(0)))
    own, other = (params["blocks"]["kinds"][str(i)]["attention"] for i in (0, 1))
    assert set(own) - set(other) == {"key", "value"}
    assert [layer is None for layer in apply(params, 2, LENGTH, method="start").layers] == [False, True]


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
    "mixer.sparsity: the mixtures": {"mixer.sparsity": Linformer(), "causal": False, "position": ALiBi()},
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be(message):
    """One line before anything is built."""
    with pytest.raises(ConfigError, match=f"^{message.replace('(', '.')}"):
        config().replace(REFUSED[message])


def test_a_source_longer_than_the_scores():
    """The encoder of an encoder-decoder has its own length to fit."""
    sizes = {"source_vocab_size": 11, "max_source_length": 9}
    with pytest.raises(ConfigError, match="9 tokens"):
        EncoderDecoderConfig(**SIZES | sizes, mixer=Attention(num_heads=2, heads=DenseSynthesizer(length=8)))


def test_fourier_is_the_transform_of_each_document():
    """Alone it is the real part of the two-dimensional transform; packed or padded, the same of each document."""
    alone = np.fft.fft2(np.asarray(X[0])).real
    full = jnp.ones((1, LENGTH, LENGTH), bool)
    np.testing.assert_allclose(fourier_mix(X, full)[0], alone, rtol=1e-4, atol=1e-4)
    tokens = Tokens.at(jnp.array([0, 1, 0, 1, 2, 3]), jnp.array([[0, 0, 1, 1, 1, 1]]), jnp.arange(LENGTH)[None] < 5)
    packed = fourier_mix(X, (Segment() & Padding())(tokens, tokens)[:, 0])[0]
    for place in (slice(0, 2), slice(2, 5)):
        expected = np.fft.fft2(np.asarray(X[0, place])).real
        np.testing.assert_allclose(packed[place], expected, rtol=1e-4, atol=1e-4)


def test_a_convolution_of_each_document():
    """Alone it is numpy's of every feature; packed, padded or out of the slots of a cache the same of each document."""
    rng = np.random.default_rng(0)
    kernel = jnp.asarray(rng.normal(size=(3, D)), jnp.float32)

    def alone(x):
        return np.stack([np.convolve(x[:, i], kernel[:, i])[: len(x)] for i in range(D)], 1)

    tokens = Tokens.at(jnp.array([0, 1, 0, 1, 2, 3]), jnp.array([[0, 0, 1, 1, 1, 1]]), jnp.arange(LENGTH)[None] < 5)
    packed = convolve(X, kernel, tokens)[0]
    for place in (slice(0, 2), slice(2, 5)):
        np.testing.assert_allclose(packed[place], alone(np.asarray(X[0, place])), rtol=1e-5, atol=1e-5)
    running = tokens._replace(positions=jnp.arange(LENGTH)[None])  # a document may go on counting
    np.testing.assert_array_equal(convolve(X, kernel, running)[0, :5], packed[:5])
    order = rng.permutation(LENGTH)
    slots = Tokens.at(jnp.asarray(order), valid=jnp.ones((1, LENGTH), bool))
    last = Tokens.at(jnp.array([4, 5]))
    found = convolve_slots(X[:1, order], kernel, last, slots)[0]
    np.testing.assert_allclose(found, alone(np.asarray(X[0]))[4:], rtol=1e-5, atol=1e-5)


def test_a_convolution_begins_as_none():
    """The kernel is 1 at the token itself and 0 before it."""
    convolved = attention(parts=(ShortConvolution(3),))
    np.testing.assert_allclose(run(convolved)[0], run(attention())[0], rtol=1e-5, atol=1e-6)


def test_a_factor_for_each_head():
    """Doubling one head's factor adds that head's part of the output once more."""
    module, without = (attention(parts=(HeadScale(),)) for _ in range(2))
    for one, factor in ((module, 2.0), (without, 0.0)):
        one.parts["head_scale"].factors[...] = jnp.array([factor, 1.0])
    both = run(attention())[0]
    assert np.abs(both - run(without)[0]).max() > 0.1
    np.testing.assert_allclose(run(module)[0] - both, both - run(without)[0], rtol=1e-4, atol=1e-5)
