"""Objectives on tiny models, against sums by hand; what they need of a model; what a guess would have."""

import dataclasses
import functools
import math
import re
from dataclasses import dataclass

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.activations.activation import ReLU
from transformer.core.errors import ConfigError
from transformer.core.modules import split
from transformer.core.parameters import Normal
from transformer.data.corpus import packed
from transformer.embeddings.embedding import Embedding
from transformer.feed_forwards.experts import TopKExperts
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.functional.masks import Causal, Prefix
from transformer.mixers.attention.attention import Attention
from transformer.models.build import abstract_model, build
from transformer.models.classifier import ClassifierConfig
from transformer.models.config import ModelConfig
from transformer.models.encoder_decoder import EncoderDecoderConfig
from transformer.models.images import PatchConfig, VisionConfig
from transformer.models.pooling import PerToken
from transformer.models.vectors import VectorConfig
from transformer.norms.norm import RMSNorm
from transformer.objectives.chunked import ChunkedNextToken
from transformer.objectives.classes import Classification, TokenClassification
from transformer.objectives.objective import NextToken, Objective, Sums
from transformer.objectives.pairs import SequenceToSequence
from transformer.objectives.pictures import Reconstruction
from transformer.objectives.tokens import MaskedToken, MultiToken, PrefixToken
from transformer.objectives.vectors import Regression
from transformer.positions.rotary import RoPE
from transformer.runs.config import RunConfig
from transformer.testing.evaluation import Evaluated

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
V, B, L = 9, 4, 6
COMMON = {
    "vocab_size": V,
    "max_length": 8,
    "num_layers": 1,
    "d_model": 8,
    "mixer": Attention(num_heads=2),
    "feed_forward": FeedForward(d_ff=8, activation=ReLU()),
    "norm": RMSNorm(),
    "initializer": Normal(0.5),
    "embedding": Embedding(initializer=Normal(0.5)),
}
CONFIGS = {
    "decoder": ModelConfig(**COMMON, dropout=0.2),
    "predicting ahead": ModelConfig(**COMMON, predict_ahead=2),
    "encoder": ModelConfig(**COMMON, causal=False),
    "pairs": EncoderDecoderConfig(**COMMON, source_vocab_size=V),
    "classifier": ClassifierConfig(**COMMON, num_classes=3),
    "causal classifier": ClassifierConfig(**COMMON, num_classes=3, causal=True),
    "tagger": ClassifierConfig(**COMMON, num_classes=3, pooling=PerToken(), registers=1),
    "vision": VisionConfig(**COMMON, num_classes=3, image_size=(4, 4, 1), patch_size=2),
    "patches": PatchConfig(**COMMON, image_size=(4, 4, 1), patch_size=2),
    "vectors": VectorConfig(**COMMON, features=3, outputs=2),
    "encoder of vectors": VectorConfig(**COMMON, features=3, outputs=2, causal=False),
}
EXPERTS = {
    f"expert {name}": CONFIGS[name].replace(
        feed_forward=TopKExperts(num_experts=2, top=1, balance=1.0, router_z=1.0, d_ff=8, activation=ReLU())
    )
    for name in ("decoder", "predicting ahead", "pairs")
}
TOKENS = RNG.integers(0, V, (B, L + 1)).astype(np.int32)
# Rows with all labels, with some, with the first alone, and with none.
WEIGHTS = (np.arange(L) < np.array([[L], [3], [1], [0]])).astype(np.float32)


@functools.cache
def model(name):
    return split(build((CONFIGS | EXPERTS)[name], key=KEY))


def arrays(batch):
    return {name: jnp.asarray(a) for name, a in batch.items()}


@functools.cache
def compiled(objective, name):
    """The sums as a function of parameters, batch and key; a program for each shape of the batch."""
    apply = model(name)[1]
    return jax.jit(lambda params, batch, key: objective(apply, params, batch, key))


def run(objective, name, batch, key=None):
    return Sums(*map(np.asarray, compiled(objective, name)(model(name)[0], arrays(batch), key)))


@functools.cache
def forward(name):
    return jax.jit(model(name)[1], static_argnames="method")


def logits_of(name, *inputs, **more):
    return np.asarray(forward(name)(model(name)[0], *map(jnp.asarray, inputs), **more))


def sums_by_hand(logits, labels, weights, label_smoothing=0.0, z_loss=0.0):
    """Label by label."""
    loss, weight, correct, exact, sequences = np.zeros(labels.shape[1]), np.zeros(labels.shape[1]), 0.0, 0.0, 0.0
    for row_logits, row, row_weights in zip(logits.astype(np.float64), labels, weights, strict=True):
        hits = 0
        for t, label in enumerate(row):
            if row_weights[t] == 0:
                continue
            normalizer = np.log(np.exp(row_logits[t]).sum())
            target = np.full(len(row_logits[t]), label_smoothing / len(row_logits[t]))
            target[label] += 1 - label_smoothing
            loss[t] += target @ (normalizer - row_logits[t]) + z_loss * normalizer**2
            weight[t] += 1
            hits += row_logits[t].argmax() == label
        correct += hits
        exact += row_weights.sum() > 0 and hits == row_weights.sum()
        sequences += row_weights.sum() > 0
    return Sums(loss, weight, correct, exact, sequences)


def check(got, expected):
    chex.assert_trees_all_close(tuple(got), tuple(np.float32(e) for e in expected), rtol=1e-5, atol=1e-5)


# Sums by hand.


@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.2, "z_loss": 0.1}], ids=["plain", "smoothed"])
def test_next_token(options):
    """Cross-entropy of each token given those before it, where the weights are 1."""
    expected = sums_by_hand(logits_of("decoder", TOKENS[:, :-1]), TOKENS[:, 1:], WEIGHTS, **options)
    check(run(NextToken(**options), "decoder", {"tokens": TOKENS, "weights": WEIGHTS}), expected)


@pytest.mark.parametrize("chunk", [1, 4, 6, 100])
@pytest.mark.parametrize("name", ["decoder", "expert decoder"])
def test_chunks_of_logits_are_the_whole(name, chunk):
    """Sums and gradient are those of all logits at once, with dropout, packing and any size of the chunks."""
    segments = np.broadcast_to(np.arange(L + 1) >= 3, TOKENS.shape).astype(np.int32)
    batch = arrays({"tokens": TOKENS, "weights": WEIGHTS, "segments": segments})
    params, apply = model(name)

    def sums_and_gradient(objective):
        def total(params):
            sums = objective(apply, params, batch, KEY)
            return sums.loss.sum(), sums

        return jax.jit(jax.grad(total, has_aux=True))(params)

    how = {"label_smoothing": 0.2, "z_loss": 0.1}
    whole, parts = map(sums_and_gradient, (NextToken(**how), ChunkedNextToken(**how, chunk=chunk)))
    chex.assert_trees_all_close(parts, whole, rtol=1e-5, atol=1e-6)


def test_chunks_of_logits_are_not_there_at_once():
    """The gradient's program holds no array of all logits, which that of `next_token` does."""
    params, apply = model("decoder")
    batch = arrays({"tokens": TOKENS})

    def largest(objective):
        gradient = jax.grad(lambda params: objective(apply, params, batch, None).loss.sum())
        shapes = re.findall(r"f32\[([\d,]+)\]", str(jax.make_jaxpr(gradient)(params)))
        return max(math.prod(map(int, s.split(","))) for s in shapes if s.split(",")[-1] == str(V))

    assert largest(NextToken()) == B * L * V
    assert largest(ChunkedNextToken(chunk=2)) == B * 2 * V
    with pytest.raises(ConfigError, match=r"chunked_next_token\.chunk: 0"):
        ChunkedNextToken(chunk=0)


@pytest.mark.parametrize("packed", [False, True])
def test_multi_token(packed):
    """The loss of the next token, and the mean of those after it, of the same document alone."""
    batch = {"tokens": TOKENS, "weights": WEIGHTS}
    more = {}
    if packed:
        segments = np.broadcast_to(np.arange(L + 1) >= 3, TOKENS.shape).astype(np.int32)
        batch |= {"segments": segments, "positions": np.broadcast_to(np.r_[:3, : L - 2], TOKENS.shape)}
        more = {f"{name}_BL": jnp.asarray(batch[name][:, :-1]) for name in ("segments", "positions")}
    logits = logits_of("predicting ahead", TOKENS[:, :-1], method="predict_ahead", **more)
    expected = sums_by_hand(logits[0], TOKENS[:, 1:], WEIGHTS)
    for ahead in (1, 2):
        weights = WEIGHTS[:, ahead:]
        if packed:
            weights = weights * (segments[:, : -1 - ahead] == segments[:, 1 + ahead :])
        later = sums_by_hand(logits[ahead][:, :-ahead], TOKENS[:, 1 + ahead :], weights)
        expected.loss[:-ahead] += 0.5 * later.loss / 2
    check(run(MultiToken(weight=0.5), "predicting ahead", batch), expected)


def test_the_next_token_is_that_of_the_model():
    """Further predictions do not touch the first; the evaluation is that of the next token; training them is said."""
    first = logits_of("predicting ahead", TOKENS[:, :-1], method="predict_ahead")[0]
    np.testing.assert_allclose(first, logits_of("predicting ahead", TOKENS[:, :-1]), rtol=1e-5, atol=1e-6)
    assert MultiToken(label_smoothing=0.1).plain() == NextToken(auxiliary=0.0)
    for objective, name in ((NextToken(), "predicting ahead"), (MultiToken(), "decoder")):
        with pytest.raises(ConfigError, match=r"model\.predict_ahead"):
            RunConfig(model=CONFIGS[name], objective=objective)
    with pytest.raises(ConfigError, match=r"model\.predict_ahead"):
        CONFIGS["encoder"].replace(predict_ahead=1)


def test_without_weights_every_label_counts():
    """Ones are what is missing."""
    ones = np.ones_like(WEIGHTS)
    plain, weighted = (run(NextToken(), "decoder", {"tokens": TOKENS} | w) for w in ({}, {"weights": ones}))
    chex.assert_trees_all_equal(plain, weighted)
    np.testing.assert_array_equal(plain.weight, B)
    assert plain.sequences == B


def test_exact_sequences():
    """A sequence is exact where all its real labels are the most likely ones; one without labels is not counted."""
    tokens = TOKENS.copy()
    for t in range(L):  # greedy, so that the row is what the model says
        tokens[1, t + 1] = logits_of("decoder", tokens[:, :-1])[1, t].argmax()
    sums = run(NextToken(), "decoder", {"tokens": tokens, "weights": WEIGHTS})
    check(sums, sums_by_hand(logits_of("decoder", tokens[:, :-1]), tokens[:, 1:], WEIGHTS))
    assert sums.exact >= 1
    assert sums.sequences == 3


def test_next_token_of_packed_documents():
    """Segments and positions are those of the inputs."""
    segments = np.tile(np.array([1, 1, 1, 2, 2, 2, 0], np.int32), (B, 1))
    positions = np.tile(np.array([0, 1, 2, 0, 1, 2, 0], np.int32), (B, 1))
    batch = {"tokens": TOKENS, "segments": segments, "positions": positions}
    inputs = {"segments_BL": jnp.asarray(segments[:, :-1]), "positions_BL": jnp.asarray(positions[:, :-1])}
    logits = logits_of("decoder", TOKENS[:, :-1], **inputs)
    check(run(NextToken(), "decoder", batch), sums_by_hand(logits, TOKENS[:, 1:], np.ones((B, L))))


@pytest.mark.parametrize("prefix", [None, [0, 1, 3, 6]])
def test_prefix_token(prefix):
    """The prefix sees itself in both directions and none of its tokens is a label; half of the sequence, or given."""
    lengths = np.full(B, L // 2) if prefix is None else np.array(prefix)
    batch = {"tokens": TOKENS, "weights": WEIGHTS} | ({} if prefix is None else {"prefix": lengths.astype(np.int32)})
    logits = logits_of("decoder", TOKENS[:, :-1], mask=Causal() | Prefix(jnp.asarray(lengths)))
    weights = WEIGHTS * (np.arange(1, L + 1) >= lengths[:, None])
    check(run(PrefixToken(), "decoder", batch), sums_by_hand(logits, TOKENS[:, 1:], weights))


def test_the_prefix_of_a_padded_sequence_is_a_share_of_its_tokens():
    """Half of each, rounded down: padding has no part in it."""
    real = np.array([L, 5, 2, 1])
    valid = np.arange(L) < real[:, None]
    batch = {"tokens": TOKENS, "weights": valid.astype(np.float32), "valid": valid}
    given = run(PrefixToken(), "decoder", batch | {"prefix": (real // 2).astype(np.int32)})
    check(run(PrefixToken(), "decoder", batch), given)
    assert given.sequences == B


def test_a_share_that_is_whole_is_not_rounded_down():
    """29 % of 100 tokens are 29, though the product of floats is a little less."""
    batch = {"tokens": jnp.zeros((1, 101), jnp.int32)}
    for share, expected in ((0.29, 29), (0.57, 57), (0.295, 29)):
        assert int(PrefixToken(share=share)._prefix(batch)[0]) == expected


def test_prefix_of_nothing_is_next_token():
    """A share of 0, or a prefix of one token, leaves a causal model."""
    batch = {"tokens": TOKENS, "weights": WEIGHTS}
    check(run(PrefixToken(share=0.0), "decoder", batch), run(NextToken(), "decoder", batch))
    one = {"prefix": np.ones(B, np.int32)}
    check(run(PrefixToken(), "decoder", batch | one), run(NextToken(), "decoder", batch))


def test_masked_token():
    """Cross-entropy of the chosen tokens, given the corrupted ones; the last token of the batch is not read.

    Weights are of the tokens after these, and say here which row fills the batch.
    """
    objective = MaskedToken(rate=0.5)
    seen, chosen = objective.corrupt(jnp.asarray(TOKENS[:, :-1]), V, KEY)
    logits, real = logits_of("encoder", seen), WEIGHTS.any(1, keepdims=True)
    sums = run(objective, "encoder", {"tokens": TOKENS, "weights": WEIGHTS})
    check(sums, sums_by_hand(logits, TOKENS[:, :-1], real * np.asarray(chosen)))
    other = np.append(TOKENS[:, :-1], 8 - TOKENS[:, -1:], 1)
    chex.assert_trees_all_equal(run(objective, "encoder", {"tokens": other, "weights": WEIGHTS}), sums)


def test_masked_tokens_do_not_see_padding():
    """What stands in the padding has no influence on the loss of real tokens."""
    valid = np.broadcast_to(np.arange(L) < 4, (B, L))
    weights = valid.astype(np.float32)
    rests = (TOKENS, np.where(np.arange(L + 1) < 4, TOKENS, 8 - TOKENS))
    batches = ({"tokens": t, "weights": weights, "valid": valid} for t in rests)
    first, second = (run(MaskedToken(rate=0.5, masked=1.0, random=0.0), "encoder", b) for b in batches)
    check(first, second)


def test_the_last_token_of_a_document_may_be_hidden_and_counts():
    """Every real token does, though the label after it is of another document."""
    rows = packed(TOKENS.reshape(-1)[:10], np.array([2, 4, 7, 10]), L)
    sums = run(MaskedToken(rate=1.0), "encoder", rows)
    np.testing.assert_array_equal(sums.weight, rows["valid"].sum(0))


def test_a_row_without_a_label_may_have_any_loss():
    """A filling row, of which a model that looks for the largest real token makes infinity."""
    losses_BL, weights_BL = jnp.array([[1.0, 2.0], [jnp.nan, jnp.inf]]), jnp.array([[1.0, 0.5], [0.0, 0.0]])
    sums = Sums.of(losses_BL, weights_BL, jnp.zeros((2, 2)))
    assert sums.loss.tolist() == [1.0, 1.0]


def test_masked_tokens_of_packed_documents():
    """Packed documents do not see each other: other tokens in the second leave the loss of the first."""
    segments = np.broadcast_to(np.array([1, 1, 1, 2, 2, 2, 2], np.int32), (B, L + 1))
    positions = np.broadcast_to(np.array([0, 1, 2, 0, 1, 2, 3], np.int32), (B, L + 1))
    others = (TOKENS, np.where(segments == 1, TOKENS, 8 - TOKENS))
    sums = [
        run(MaskedToken(rate=0.5), "encoder", {"tokens": t, "segments": segments, "positions": positions})
        for t in others
    ]
    chex.assert_trees_all_close(sums[0].loss[:3], sums[1].loss[:3], rtol=1e-5)


def test_a_prefix_of_packed_documents_does_not_hide_labels_in_sight():
    """A label inside the prefix of its document is seen by the model, and does not count."""
    segments = np.broadcast_to(np.array([1, 1, 1, 2, 2, 2, 2], np.int32), (B, L + 1))
    positions = np.broadcast_to(np.array([0, 1, 2, 0, 1, 2, 3], np.int32), (B, L + 1))
    batch = {"tokens": TOKENS, "segments": segments, "positions": positions}
    sums = run(PrefixToken(), "decoder", batch | {"prefix": np.full(B, 2, np.int32)})
    in_sight = (positions[0, 1:] < 2) & (segments[0, 1:] == segments[0, :-1])
    assert not sums.weight[in_sight].any()


def test_a_penalty_is_that_of_real_target_tokens():
    """More padding behind the target leaves the loss of each position, and with it the imbalance of experts."""
    source = {"source": TOKENS[:, :5], "source_valid": np.ones((B, 5), bool)}
    behind = ((0, 0), (0, 2))
    padded = {"target": np.pad(TOKENS, behind), "weights": np.pad(WEIGHTS, behind)}
    short = run(SequenceToSequence(), "expert pairs", source | {"target": TOKENS, "weights": WEIGHTS})
    long = run(SequenceToSequence(), "expert pairs", source | padded)
    np.testing.assert_allclose(long.loss, np.pad(short.loss, behind[1]), rtol=1e-5)
    plain = run(SequenceToSequence(auxiliary=0.0), "expert pairs", source | padded)
    assert (long.loss - plain.loss)[:L].min() > 0.1


@pytest.mark.parametrize(
    ("objective", "name"), [(NextToken(), "expert decoder"), (MultiToken(), "expert predicting ahead")], ids=str
)
def test_a_penalty_is_that_of_real_packed_tokens(objective, name):
    """More padding behind packed documents leaves the loss of each position."""
    documents = [TOKENS[0, :5], TOKENS[1, :2], TOKENS[2, :3]]
    rows = packed(np.concatenate(documents), np.cumsum([5, 2, 3]), L)
    assert rows["valid"].any(1).all()
    assert not rows["valid"].all()
    long = {name: np.pad(array, ((0, 0), (0, 2))) for name, array in rows.items()}
    sums = [run(objective, name, batch) for batch in (rows, long)]
    np.testing.assert_allclose(sums[1].loss, np.pad(sums[0].loss, (0, 2)), rtol=1e-5)


@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.2, "z_loss": 0.1}], ids=["plain", "smoothed"])
def test_sequence_to_sequence(options):
    """Cross-entropy of the target given the real tokens of the source."""
    source, valid = TOKENS[:, :5], np.arange(5) < np.array([[5], [2], [1], [0]])
    batch = {"source": source, "source_valid": valid, "target": TOKENS, "weights": WEIGHTS}
    logits = logits_of("pairs", source, TOKENS[:, :-1], source_valid_BS=jnp.asarray(valid))
    chex.assert_trees_all_equal(
        *(run(SequenceToSequence(), "pairs", batch | {"weights": WEIGHTS.astype(kind)}) for kind in (bool, np.float32))
    )
    expected = sums_by_hand(logits, TOKENS[:, 1:], WEIGHTS, **options)
    check(run(SequenceToSequence(**options), "pairs", batch), expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_classification(smoothing):
    """One label to a sequence; padding has no say; a row of weight 0 only fills the batch."""
    labels, valid = np.array([0, 2, 1, 0], np.int32), np.arange(L) < np.array([[L], [3], [1], [2]])
    weights = np.array([[1], [1], [1], [0]], np.float32)
    batch = {"inputs": TOKENS[:, :L], "labels": labels, "valid": valid}
    logits = logits_of("classifier", TOKENS[:, :L], valid_BL=jnp.asarray(valid))[:, None]
    objective = Classification(label_smoothing=smoothing)
    for more, real in (({}, np.ones((B, 1))), ({"weights": weights}, weights)):
        expected = sums_by_hand(logits, labels[:, None], real, label_smoothing=smoothing)
        check(run(objective, "classifier", batch | more), expected)


def test_weights_of_classes_are_factors_of_their_losses():
    """In training; evaluation counts all alike, and so does the number of labels that the sum is divided by."""
    labels = np.array([0, 2, 1, 0], np.int32)
    batch = {"inputs": TOKENS[:, :L], "labels": labels}
    logits = logits_of("classifier", TOKENS[:, :L])
    losses = -np.asarray(jax.nn.log_softmax(logits))[np.arange(B), labels]
    found = run(Classification(class_weights=(1.0, 4.0, 0.5)), "classifier", batch)
    np.testing.assert_allclose(found.loss, [losses @ np.array([1.0, 0.5, 4.0, 1.0])], rtol=1e-5)
    np.testing.assert_array_equal(found.weight, [B])
    objective = Classification(class_weights=(1.0, 4.0))
    with pytest.raises(ConfigError, match=r"^classification\.class_weights: 2 of them, and the model has 3 classes$"):
        RunConfig(model=CONFIGS["classifier"], objective=objective)
    with pytest.raises(ConfigError, match=r"class_weights: \(-1\.0,\) are not finite and at least 0"):
        Classification(class_weights=(-1.0,))
    with pytest.raises(ConfigError, match=r"classification\.class_weights: \{'good': 1\.0\} is not tuple"):
        Classification(class_weights={"good": 1.0})


def test_classification_of_images():
    """Images have no padding."""
    images, labels = RNG.normal(size=(B, 4, 4, 1)).astype(np.float32), np.array([0, 2, 1, 0], np.int32)
    logits = logits_of("vision", images)[:, None]
    check(
        run(Classification(), "vision", {"inputs": images, "labels": labels}),
        sums_by_hand(logits, labels[:, None], np.ones((B, 1))),
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_token_classification(smoothing):
    """A label to each token, which counts where it has a weight, or without weights where it is no padding."""
    labels, valid = TOKENS[:, 1:] % 3, np.arange(L) < np.array([[L], [3], [1], [2]])
    batch = {"inputs": TOKENS[:, :L], "labels": labels, "valid": valid}
    logits = logits_of("tagger", TOKENS[:, :L], valid_BL=jnp.asarray(valid))
    assert logits.shape == (B, L, 3)
    objective = TokenClassification(label_smoothing=smoothing)
    for more, real in (({}, valid), ({"weights": WEIGHTS}, WEIGHTS)):
        check(run(objective, "tagger", batch | more), sums_by_hand(logits, labels, real, label_smoothing=smoothing))


def test_pooling_and_objective_fit():
    """One class to a text, or one to a token; the error names the pooling."""
    with pytest.raises(ConfigError, match=r"model.pooling: mean does not fit the objective token_classification"):
        RunConfig(model=CONFIGS["classifier"], objective=TokenClassification())
    with pytest.raises(ConfigError, match=r"model.pooling: per_token does not fit the objective classification"):
        RunConfig(model=CONFIGS["tagger"], objective=Classification())


@pytest.mark.parametrize(("rate", "hides"), [(0.0, 0), (0.5, 2), (0.01, 1)])
def test_reconstruction(rate, hides):
    """Mean squared error of the pixels of hidden patches, one at least; of all patches where none is to be hidden."""
    images = RNG.normal(size=(B, 4, 4, 1)).astype(np.float32)
    weights = np.array([[1], [1], [1], [0]], np.float32)
    numbers = Reconstruction(rate=rate).hide(B, 4, None)
    hidden = (np.asarray(numbers)[:, :, None] == np.arange(4)).any(1)
    assert (hidden.sum(1) == hides).all()
    out = logits_of("patches", images, hidden_BH=numbers)
    errors = ((out - images) ** 2).reshape(B, 2, 2, 2, 2).mean((2, 4)).reshape(B, 4)
    chosen = (hidden if rate else ~hidden) * weights
    for more, real in (({}, hidden if rate else ~hidden), ({"weights": weights}, chosen)):
        sums = run(Reconstruction(rate=rate), "patches", {"inputs": images} | more)
        chex.assert_trees_all_close(sums.loss, (errors * real).sum(0), rtol=1e-5)
        np.testing.assert_array_equal(sums.weight, real.sum(0))
        assert sums.sequences == (real.sum(1) > 0).sum()


def test_another_image_is_made_of_one():
    """The error is that to the targets; normalized, to patches of mean 0 and variance 1, which is over n - 1."""
    images, targets = (RNG.normal(size=(B, 4, 4, 1)).astype(np.float32) for _ in range(2))
    out = logits_of("patches", images)
    patches, wanted = (a.reshape(B, 2, 2, 2, 2).transpose(0, 1, 3, 2, 4).reshape(B, 4, 4) for a in (out, targets))
    batch, objective = {"inputs": images, "targets": targets}, Reconstruction(rate=0.0)
    errors = ((patches - wanted) ** 2).mean(-1).sum(0)
    chex.assert_trees_all_close(run(objective, "patches", batch).loss, errors, rtol=1e-5)
    normal = (wanted - wanted.mean(-1, keepdims=True)) / wanted.std(-1, keepdims=True, ddof=1)
    relative = Reconstruction(rate=0.0, normalized=True)
    found = run(relative, "patches", batch).loss
    chex.assert_trees_all_close(found, ((patches - normal) ** 2).mean(-1).sum(0), rtol=1e-3)
    np.testing.assert_allclose(relative.pixels(jnp.asarray(normal), jnp.asarray(wanted)), wanted, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(objective.pixels(normal, wanted), normal)


@pytest.mark.parametrize("shape", [(1, 4, 4, 1), (B, 4, 8, 1)])
def test_targets_are_as_large_as_the_images(shape):
    batch = {"inputs": np.ones((B, 4, 4, 1), np.float32), "targets": np.ones(shape, np.float32)}
    with pytest.raises(ConfigError, match=r"^reconstruction: targets .* for images "):
        run(Reconstruction(), "patches", batch)


def test_labels_of_vectors_that_count_are_weights():
    batch = {"inputs": np.ones((B, L, 3), np.float32), "labels": np.ones((B, L, 2), np.float32)}
    with pytest.raises(ConfigError, match=r"^regression: a batch has no `valid`; `weights` \(B, L\) say which"):
        run(Regression(), "vectors", batch | {"valid": np.ones((B, L), bool)})


def test_regression():
    """Squared errors of the real labels alone, their mean over the numbers of a label; none counts as correct."""
    inputs, labels = (RNG.normal(size=(B, L, size)).astype(np.float32) for size in (3, 2))
    errors = ((logits_of("vectors", inputs) - labels) ** 2).mean(-1)
    for more, weights in (({}, np.ones((B, L))), ({"weights": WEIGHTS}, WEIGHTS)):
        sums = run(Regression(), "vectors", {"inputs": inputs, "labels": labels} | more)
        chex.assert_trees_all_close(sums.loss, (errors * weights).sum(0), rtol=1e-5)
        np.testing.assert_array_equal(sums.weight, weights.sum(0))
        assert (sums.correct, sums.exact) == (0, 0)
        assert sums.sequences == (weights.sum(1) > 0).sum()
    for other in (labels[..., :1], labels[..., 0]):
        with pytest.raises(ConfigError, match=r"^regression: labels \(.*\) for predictions \("):
            run(Regression(), "vectors", {"inputs": inputs, "labels": other})


# Randomness.


def test_shares_of_masked_tokens():
    """Of all tokens 15% are chosen; of these 80% masked, 10% random, 10% as they were; no other token is touched."""
    tokens = jnp.asarray(RNG.integers(5, 105, (200, 500)), jnp.int32)
    seen, chosen = (np.asarray(a) for a in MaskedToken().corrupt(tokens, 105, KEY))
    masked, same = seen == 4, seen == tokens
    assert same[~chosen].all()
    assert abs(chosen.mean() - 0.15) < 0.005
    # A random token is the mask with probability 1/105, and the token itself with the same.
    assert abs(masked[chosen].mean() - 0.8) < 0.015
    assert abs(same[chosen].mean() - 0.1) < 0.015
    others = seen[chosen & ~masked & ~same]
    assert set(others) == set(range(105)) - {4}
    assert abs(len(others) / chosen.sum() - 0.1) < 0.015


@pytest.mark.parametrize(("masked", "random"), [(1.0, 0.0), (0.0, 1.0), (0.0, 0.0)])
def test_shares_may_be_all_or_nothing(masked, random):
    """All chosen tokens are masked, or random, or unchanged."""
    tokens = jnp.full((50, 50), 7, jnp.int32)
    seen, chosen = MaskedToken(rate=1.0, masked=masked, random=random).corrupt(tokens, 9, KEY)
    assert np.asarray(chosen).all()
    expected = {4} if masked else set(range(9)) if random else {7}
    assert set(np.unique(seen)) == expected


def test_the_mask_is_a_token_of_the_model():
    """103 is BERT's; in a vocabulary of one's own every loss would be no number."""
    with pytest.raises(ConfigError, match=r"^masked_token\.mask_token: -1 is no id of a token$"):
        MaskedToken(mask_token=-1)
    for refused in (
        lambda: MaskedToken(mask_token=103).check(CONFIGS["encoder"]),
        lambda: run(MaskedToken(mask_token=103), "encoder", {"tokens": TOKENS}),
    ):
        with pytest.raises(ConfigError, match=rf"^masked_token\.mask_token: 103 is not in \[0, {V}\)"):
            refused()


def test_a_row_may_be_shorter_than_what_is_predicted_ahead():
    sums = run(MultiToken(), "predicting ahead", {"tokens": TOKENS[:, :2]})
    assert sums.loss.shape == (1,)
    assert np.isfinite(sums.loss).all()


@pytest.mark.parametrize(
    "fields", [{"rate": 0.0}, {"rate": 1.1}, {"masked": 0.8, "random": 0.3}, {"masked": -0.1}, {"random": -0.1}]
)
def test_shares_that_cannot_be(fields):
    """They are shares of the whole, and something is chosen."""
    with pytest.raises(ConfigError, match=r"masked_token: .* are not shares in masked_token"):
        MaskedToken(**fields)


@pytest.mark.parametrize(
    "text",
    ["reconstruction(rate=-0.5)", "reconstruction(rate=1.5)", "prefix_token(share=-0.1)", "prefix_token(share=1.5)"],
)
def test_shares_outside_of_the_whole(text):
    """A negative share of hidden patches would count nothing, a prefix longer than the sequence leaves no label."""
    with pytest.raises(ConfigError, match=text.partition("(")[0]):
        Objective.parse(text)


IMAGES = {"inputs": RNG.normal(size=(B, 4, 4, 1)).astype(np.float32)}
CHOOSING = [(MaskedToken(rate=0.5), "encoder", {"tokens": TOKENS}), (Reconstruction(), "patches", IMAGES)]


@pytest.mark.parametrize(("objective", "name", "batch"), CHOOSING, ids=["masked_token", "reconstruction"])
def test_without_a_key_the_choice_is_always_the_same(objective, name, batch):
    """Evaluation is a function of the parameters; a key chooses anew, and another key anew again."""
    first, again = run(objective, name, batch), run(objective, name, batch)
    chex.assert_trees_all_equal(first, again)
    keyed = [run(objective, name, batch, jax.random.key(i)) for i in range(3)]
    assert len({tuple(sums.weight) for sums in (first, *keyed)}) >= 3


def test_a_key_turns_dropout_on():
    """The same batch has another loss under a key, and the same again under the same key."""
    batch = {"tokens": TOKENS}
    plain, first, again = (run(NextToken(), "decoder", batch, key) for key in (None, KEY, KEY))
    chex.assert_trees_all_equal(first, again)
    assert np.abs(plain.loss - first.loss).max() > 1e-3


LABELS = np.array([0, 2, 1, 0], np.int32)
VECTORS = {"inputs": RNG.normal(size=(B, L, 3)).astype(np.float32), "labels": np.ones((B, L, 2), np.float32)}
ONE_OF_EACH = [
    (NextToken(), "decoder", {"tokens": TOKENS}),
    (ChunkedNextToken(chunk=4), "decoder", {"tokens": TOKENS}),
    (MultiToken(), "predicting ahead", {"tokens": TOKENS}),
    (PrefixToken(), "decoder", {"tokens": TOKENS}),
    (MaskedToken(rate=0.5), "encoder", {"tokens": TOKENS}),
    (SequenceToSequence(), "pairs", {"source": TOKENS[:, :5], "source_valid": np.ones((B, 5), bool), "target": TOKENS}),
    (Classification(), "classifier", {"inputs": TOKENS[:, :L], "labels": LABELS}),
    (TokenClassification(), "tagger", {"inputs": TOKENS[:, :L], "labels": TOKENS[:, 1:] % 3}),
    (Reconstruction(), "patches", IMAGES),
    (Regression(), "vectors", VECTORS),
]


@pytest.mark.parametrize(
    ("objective", "name", "batch"), ONE_OF_EACH, ids=lambda value: str(value) if isinstance(value, Objective) else ""
)
def test_without_a_key_nothing_is_dropped(objective, name, batch):
    """The sums are those of the model without dropout; a key decides what is dropped, another key anew."""
    applies = (split(abstract_model(CONFIGS[name].replace(dropout=rate)))[1] for rate in (0.0, 0.5))
    plain, dropping = (Evaluated(functools.partial(objective, apply)) for apply in applies)
    params = model(name)[0]
    expected = plain(params, batch, None)
    chex.assert_trees_all_close(dropping(params, batch, None), expected)
    losses = [dropping(params, batch, jax.random.key(seed)).loss.sum() for seed in (0, 1, 0)]
    assert losses[0] == losses[2]
    assert min(abs(losses[0] - losses[1]), abs(losses[0] - expected.loss.sum())) > 1e-3


# What an objective is besides.

FITTING = {
    "next_token": {"decoder"},
    "chunked_next_token": {"decoder"},
    "multi_token": {"predicting ahead"},
    "prefix_token": {"decoder"},
    "masked_token": {"encoder"},
    "sequence_to_sequence": {"pairs"},
    "classification": {"classifier", "causal classifier", "vision"},
    "token_classification": {"tagger"},
    "reconstruction": {"patches"},
    "regression": {"vectors"},
}


@pytest.mark.parametrize("objective", FITTING)
def test_an_objective_needs_its_kind_of_model(objective):
    """A run whose model cannot have the objective is refused when it is described."""
    accepted = set()
    for name, config in CONFIGS.items():
        try:
            RunConfig(model=config, objective=Objective.parse(objective))
            accepted.add(name)
        except ConfigError:
            pass
    assert accepted == FITTING[objective]


def test_every_shipped_objective_is_tested_here():
    """A new one needs a row above."""
    shipped = {name for name, o in Objective.variants().items() if o.__module__.startswith("transformer.")}
    assert shipped == set(FITTING) == {objective.name for objective, *_ in ONE_OF_EACH}


def test_the_wrong_direction_is_named():
    """The error says which kind of model it needs."""
    with pytest.raises(ConfigError, match="next_token needs a causal model"):
        RunConfig(model=CONFIGS["encoder"])
    with pytest.raises(ConfigError, match=r"masked_token needs an encoder \(causal=False\), not a causal model"):
        RunConfig(model=CONFIGS["decoder"], objective=MaskedToken())


@pytest.mark.parametrize(
    ("objective", "plain"),
    [
        (NextToken(label_smoothing=0.1, z_loss=0.1), NextToken(auxiliary=0.0)),
        (PrefixToken(label_smoothing=0.1, z_loss=0.1, share=0.3), PrefixToken(share=0.3, auxiliary=0.0)),
        (SequenceToSequence(label_smoothing=0.1, z_loss=0.1), SequenceToSequence(auxiliary=0.0)),
        (Classification(label_smoothing=0.1), Classification(auxiliary=0.0)),
        (Classification(class_weights=(1.0, 2.0)), Classification(auxiliary=0.0)),
        (MaskedToken(rate=0.3), MaskedToken(rate=0.3, auxiliary=0.0)),
        (TokenClassification(label_smoothing=0.1), TokenClassification(auxiliary=0.0)),
        (Reconstruction(rate=0.3), Reconstruction(rate=0.3, auxiliary=0.0)),
        (Regression(), Regression(auxiliary=0.0)),
    ],
    ids=str,
)
def test_plain(objective, plain):
    """The evaluation has neither smoothing nor penalty, and all else as it is; text and back is the same."""
    assert objective.plain() == plain
    assert Objective.parse(str(objective)) == objective


@pytest.mark.parametrize(
    ("objective", "name", "chance"),
    [
        (NextToken(), "decoder", math.log(V)),
        (PrefixToken(), "decoder", math.log(V)),
        (MaskedToken(), "encoder", math.log(V)),
        (SequenceToSequence(), "pairs", math.log(V)),
        (Classification(), "classifier", math.log(3)),
        (TokenClassification(), "tagger", math.log(3)),
        (Reconstruction(), "patches", math.inf),
        (Regression(), "vectors", math.inf),
    ],
    ids=lambda value: str(value) if isinstance(value, Objective) else "",
)
def test_chance(objective, name, chance):
    """The loss of equal probabilities for all labels; squared errors have no such thing."""
    assert objective.chance(CONFIGS[name]) == pytest.approx(chance)


def test_chance_is_the_loss_of_zeros():
    """A model whose logits are all zero has it."""
    zeros = jax.tree.map(jnp.zeros_like, model("decoder")[0])
    sums = compiled(NextToken(), "decoder")(zeros, {"tokens": jnp.asarray(TOKENS)}, None)
    np.testing.assert_allclose(sums.loss.sum() / sums.weight.sum(), NextToken().chance(CONFIGS["decoder"]), rtol=1e-6)


@pytest.mark.parametrize(
    ("objective", "batch", "count"),
    [
        (NextToken(), {"tokens": TOKENS}, B * L),
        (MaskedToken(), {"tokens": TOKENS}, B * L),
        (SequenceToSequence(), {"target": TOKENS}, B * L),
        (Classification(), {"labels": np.zeros(B, np.int32)}, B),
        (TokenClassification(), {"labels": np.zeros((B, L), np.int32)}, B * L),
        (Reconstruction(), {"inputs": np.zeros((B, 4, 4, 1))}, B * 16),
        (Regression(), {"labels": np.zeros((B, L, 2))}, B * L),
    ],
    ids=lambda value: str(value) if isinstance(value, Objective) else "",
)
def test_labels_count_what_is_predicted(objective, batch, count):
    """Under further leading axes too, as the batches of a dispatch have them."""
    assert objective.labels(batch).size == count
    assert objective.labels({name: a[None, None] for name, a in batch.items()}).size == count


@pytest.mark.parametrize("kind", [NextToken, MultiToken, PrefixToken, SequenceToSequence, Classification])
@pytest.mark.parametrize("value", [-0.1, 1.0])
def test_smoothing_is_a_share(kind, value):
    with pytest.raises(ConfigError, match=rf"{kind.name}\.label_smoothing: {value} is not in \[0, 1\)"):
        kind(label_smoothing=value)


@pytest.mark.parametrize("kind", [NextToken, MultiToken, PrefixToken, SequenceToSequence])
def test_a_penalty_is_none_below_zero(kind):
    with pytest.raises(ConfigError, match=rf"{kind.name}\.z_loss: -0.1 is negative"):
        kind(z_loss=-0.1)


def test_an_objective_that_returns_no_sums_is_named():
    @dataclass(frozen=True)
    class MeanLoss(Objective):
        def labels(self, batch):
            return batch["tokens"]

        def __call__(self, apply, params, batch, key):
            return jnp.float32(1.0)

    fields = "loss, weight, correct, exact, sequences"
    with pytest.raises(ConfigError, match=rf"^objective: meanloss returns \w+, and Sums\({fields}\) is needed$"):
        MeanLoss().segment_sums(lambda *_: None, {}, {}, None, None)


def test_an_objective_that_asks_the_model_otherwise_reads_no_segments():
    """They are read by `segment_sums`, which would leave its own sums out without a word."""

    @dataclass(frozen=True, kw_only=True)
    class OwnLosses(NextToken):
        def losses(self, logits_BLV, labels_BL):
            return 2 * super().losses(logits_BLV, labels_BL)

    @dataclass(frozen=True, kw_only=True)
    class OwnCall(NextToken):
        def __call__(self, apply, params, batch, key):
            return super().__call__(apply, params, batch, key)

    @dataclass(frozen=True, kw_only=True)
    class OwnSegments(OwnCall):
        def segment_sums(self, apply, params, batch, key, earlier):
            return super().segment_sums(apply, params, batch, key, earlier)

    model = CONFIGS["decoder"].replace(memory_length=4, position=RoPE())
    for objective in (NextToken(), OwnLosses(), OwnSegments()):
        objective.check(model)
    for objective in (OwnCall(), ChunkedNextToken(), PrefixToken()):
        with pytest.raises(ConfigError, match=rf"{objective.name}.* do not follow each other; use next_token$"):
            objective.check(model)


@pytest.mark.parametrize(
    ("batch", "line"),
    [
        (
            {"tokens": TOKENS, "weight": WEIGHTS},
            r"^batch: no objective reads an array 'weight'; did you mean 'weights'\?$",
        ),
        ({"tokens": TOKENS, "segment": TOKENS}, r"did you mean 'segments'\?$"),
        (TOKENS, r"^batch: ndarray is given, and arrays by name are needed, such as tokens$"),
    ],
    ids=["weight", "segment", "array"],
)
def test_an_array_by_nearly_a_name_is_not_left_out(batch, line):
    with pytest.raises(ConfigError, match=line):
        NextToken().segment_sums(model("decoder")[1], model("decoder")[0], batch, None, None)
    own = {"tokens": jnp.asarray(TOKENS), "token_types": TOKENS, "teacher": TOKENS}
    assert NextToken().segment_sums(model("decoder")[1], model("decoder")[0], own, None, None)[0].sequences == B


def test_an_objective_may_need_a_kind_of_model_of_ones_own():
    @dataclass(frozen=True, kw_only=True)
    class Shifted(ModelConfig):
        kind = "shifted"

    @dataclass(frozen=True)
    class OfShifted(NextToken):
        needs = Shifted

    OfShifted().check(Shifted())
    with pytest.raises(ConfigError, match=r"^objective: ofshifted needs a model of Shifted, not of ModelConfig$"):
        OfShifted().check(ModelConfig())
    with pytest.raises(ConfigError, match=r"^objective: next_token needs a model of ModelConfig, not of Shifted$"):
        NextToken().check(Shifted())


def test_losses_of_ones_own_are_those_of_all_that_is_summed():
    @dataclass(frozen=True)
    class Halved(NextToken):
        def losses(self, logits_BLV, labels_BL):
            return super().losses(logits_BLV, labels_BL) / 2

    logits = np.random.default_rng(0).normal(size=(3, 4, 7)).astype(np.float32)
    batch = {"tokens": np.random.default_rng(1).integers(7, size=(3, 5))}
    half, whole = (
        each(auxiliary=0.0)(lambda *_, **__: jnp.asarray(logits), {}, batch, None) for each in (Halved, NextToken)
    )
    np.testing.assert_allclose(half.loss * 2, whole.loss, rtol=1e-6)
    assert half.correct == whole.correct


def test_sums_are_of_one_shape():
    """A weight for each row would be broadcast, and count L times."""
    losses = jnp.ones((3, 4))
    with pytest.raises(ConfigError, match=r"sums: losses have the shape \(3, 4\), weights \(3, 1\), hits \(3, 4\)"):
        Sums.of(losses, losses[:, :1], losses)


def test_labels_that_do_not_count_may_be_no_numbers():
    """In the gradient too."""
    rng = np.random.default_rng(0)
    inputs, labels = rng.normal(size=(2, 3, 4)).astype(np.float32), rng.normal(size=(2, 3, 1)).astype(np.float32)
    weights = np.array([[1, 1, 0], [1, 0, 0]], np.float32)

    def loss(kernel, labels):
        batch = {"inputs": inputs, "labels": labels, "weights": weights}
        return Regression(auxiliary=0.0)(lambda k, x, **_: x @ k, kernel, batch, None).loss.sum()

    kernel, hidden = jnp.ones((4, 1)), np.where(weights[..., None] > 0, labels, np.nan)
    found, expected = (jax.value_and_grad(loss)(kernel, each) for each in (hidden, labels))
    chex.assert_trees_all_close(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("objective", "name", "batch"), ONE_OF_EACH, ids=lambda value: str(value) if isinstance(value, Objective) else ""
)
def test_a_penalty_is_added_once_to_the_loss_of_each_label(objective, name, batch):
    """Times `auxiliary`, whatever is predicted."""
    params, apply = model(name)

    def zeros(*inputs, with_penalty=False, **more):
        shapes = jax.eval_shape(functools.partial(apply, **more), *inputs)
        answer = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
        return (answer, jnp.float32(0.5)) if with_penalty else answer

    plain, more = (
        dataclasses.replace(objective, auxiliary=factor)(zeros, params, arrays(batch), None) for factor in (0.0, 3.0)
    )
    assert plain.weight.sum() > 0
    np.testing.assert_allclose(more.loss - plain.loss, 1.5 * plain.weight, rtol=1e-4, atol=1e-4)


def test_a_penalty_is_added_to_the_loss_of_each_label_of_a_segment():
    def apply(params, tokens_BL, earlier, *, method, key, with_penalty):
        return (jnp.zeros((*tokens_BL.shape, V)), earlier), 0.5

    batch = {"tokens": TOKENS, "weights": WEIGHTS}
    sums, _ = NextToken(auxiliary=3.0).segment_sums(apply, {}, batch, None, "memory")
    np.testing.assert_allclose(sums.loss, (math.log(V) + 1.5) * WEIGHTS.sum(0), rtol=1e-6)


def test_further_tokens_are_smoothed_as_the_next_one_is():
    how = {"label_smoothing": 0.2, "z_loss": 0.1}
    logits = logits_of("predicting ahead", TOKENS[:, :-1], method="predict_ahead")
    expected = sums_by_hand(logits[0], TOKENS[:, 1:], WEIGHTS, **how)
    for ahead in (1, 2):
        later = sums_by_hand(logits[ahead][:, :-ahead], TOKENS[:, 1 + ahead :], WEIGHTS[:, ahead:], **how)
        expected.loss[:-ahead] += later.loss / 2
    check(run(MultiToken(**how), "predicting ahead", {"tokens": TOKENS, "weights": WEIGHTS}), expected)


def test_labels_behind_the_prefix_of_each_packed_document_count():
    segments = np.broadcast_to(np.array([1, 1, 1, 2, 2, 2, 2], np.int32), (B, L + 1))
    positions = np.broadcast_to(np.array([0, 1, 2, 0, 1, 2, 3], np.int32), (B, L + 1))
    batch = {"tokens": TOKENS, "segments": segments, "positions": positions, "prefix": np.full(B, 2, np.int32)}
    np.testing.assert_array_equal(PrefixToken().weights(batch), positions[:, 1:] >= 2)
