"""What probes measure, on parameters where the answer is known."""

import dataclasses
from itertools import pairwise

import jax
import numpy as np
import pytest

from transformer.analysis.activations import run_with_cache
from transformer.core.errors import ConfigError
from transformer.data.arrays import arrays
from transformer.data.dataset import first_batch, load_data
from transformer.data.labelled import ClassificationRun, LabelledConfig
from transformer.data.pairs import PairsConfig, TranslationRun
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.backends import Chunked
from transformer.mixers.attention.memory import MemoryKeyValues
from transformer.mixers.attention.projections import ConstantScale
from transformer.mixers.attention.sparsity import Linformer
from transformer.mixers.attention.synthesizers import RandomSynthesizer
from transformer.mixers.recurrent.delta import DeltaNet
from transformer.models.build import pure_model
from transformer.models.classifier import ClassifierConfig
from transformer.models.downsampling import Latents
from transformer.models.encoder_decoder import EncoderDecoderConfig
from transformer.models.pattern import Alternate
from transformer.models.pooling import ClassToken
from transformer.objectives.objective import NextToken
from transformer.objectives.tokens import MaskedToken
from transformer.positions.randomized import Randomized
from transformer.positions.relative import ALiBi
from transformer.runs.config import grid
from transformer.runs.data import TextConfig
from transformer.runs.tokenizers import Char
from transformer.study.probes import BeforeTraining, FirstKey, LongerText, QueryKeyGradient, SaturatedRows
from transformer.study.study import Study
from transformer.training.program import make_program


@pytest.fixture
def initial(base, corpus):
    """A completed config, and the parameters of two seeds before the first step."""
    config = corpus.complete(base)
    return config, jax.device_get(make_program(config, grid(range(2))).init().params)


def even_share(config, corpus):
    """What all but first tokens of blocks give the first one where each attends to all that it sees alike."""
    place = np.arange(len(corpus.validation) - 1) % config.model.max_length
    return np.mean(1 / (place[place > 0] + 1))


def changed(params, role, factor):
    """The kernels of a role in attention times a factor."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf * factor if role in {part.key for part in path} else leaf, params
    )


def test_a_model_with_a_length_of_its_own_has_no_loss_on_longer_text(initial, corpus):
    config, params = initial
    config = config.replace({"model.position": None, "model.mixer.heads": RandomSynthesizer(length=8)})
    assert np.isnan(LongerText(2)(config, params, corpus)).all()


def test_randomized_positions_of_longer_text_are_of_the_same_range(initial, corpus):
    """Positions of a text twice as long are as near to each other as they need be; past the range there are none."""
    config, params = initial
    params = {name: value for name, value in params.items() if name != "position"}

    def past(position):
        return LongerText(2)(config.replace({"model.position": position}), params, corpus)

    np.testing.assert_array_equal(past(Randomized(ALiBi(), longest=16)), past(ALiBi()))
    assert not np.isclose(past(Randomized(ALiBi(), longest=32)), past(ALiBi())).any()
    assert np.isnan(past(Randomized(ALiBi(), longest=15))).all()


def test_the_rise_is_what_later_tokens_cost_more(initial, corpus):
    """Of a text twice as long, whose first half is within the length of training."""
    config, params = initial
    config = config.replace({"model.position": ALiBi()})
    params = {name: value for name, value in params.items() if name != "position"}
    rise, past = (LongerText(2, rise=rise)(config, params, corpus) for rise in (True, False))
    longer = config.replace({"model.max_length": 16})
    batches = corpus.validation_batches(longer)
    _, apply = pure_model(config.model)
    for run in range(2):
        own = jax.tree.map(lambda leaf, run=run: leaf[run], params)
        sums = [
            NextToken()(apply, own, {k: v[i] for k, v in batches.items()}, None) for i in range(len(batches["tokens"]))
        ]
        loss_L, weight_L = (sum(np.asarray(getattr(each, name)) for each in sums) for name in ("loss", "weight"))
        later, within = (loss_L[part].sum() / weight_L[part].sum() for part in (slice(8, None), slice(8)))
        assert past[run] == pytest.approx(later, rel=1e-5)
        assert rise[run] == pytest.approx(later - within, rel=1e-3)


def test_data_that_are_never_longer_have_no_loss_past_the_length(base, corpus, tmp_path):
    """Sequences of a fixed length, and packed documents, whose positions begin again."""
    tokens = np.random.default_rng(0).integers(0, 4, (20, 9))
    (tmp_path / "documents.txt").write_text("|".join(["abab", "abcabc"] * 60))
    documents = load_data(TextConfig(path=str(tmp_path / "documents.txt"), document_separator="|"))
    for data in (arrays(tokens), documents):
        changes = {"model.position": ALiBi(), "model.vocab_size": None, "data": TextConfig()}
        config = data.complete(base.replace(changes))
        params = jax.device_get(make_program(config, grid(range(2))).init().params)
        assert np.isnan(LongerText(2)(config, params, data)).all()
        assert np.isnan(LongerText(2, rise=True)(config, params, data)).all()


def test_padding_and_filling_rows_have_no_say_in_probes_of_weights(base):
    """The same held-out sequences, once in a row as long as they are, once in a longer one."""
    tokens = np.random.default_rng(0).integers(0, 4, (20, 5))
    short, padded = arrays(tokens), arrays([[0] * 9, *tokens], validation_fraction=2 / 21)
    assert len(short.validation["tokens"]) == len(padded.validation["tokens"]) == 2
    config = short.complete(base.replace({"model.position": ALiBi(), "model.vocab_size": None}))
    params = jax.device_get(make_program(config, grid(range(2))).init().params)
    params = changed(params, "query", 100.0)
    for probe in (SaturatedRows(0.6), FirstKey()):
        alone = probe(config, params, short)
        assert (alone > 0).all()
        _, apply = pure_model(config.model)
        for run in range(2):
            own = jax.tree.map(lambda leaf, run=run: leaf[run], params)
            _, found = run_with_cache(apply, own, short.validation["tokens"][:, :-1], names="*attention.pattern")
            rows = np.stack([*found.values()])[..., 1:, :]
            expected = (rows.max(-1) > 0.6).mean() if isinstance(probe, SaturatedRows) else rows[..., 0].mean()
            assert alone[run] == pytest.approx(expected, rel=1e-4)
        np.testing.assert_allclose(probe(config, params, padded), alone, rtol=1e-5)


def test_a_class_token_before_padded_texts_is_real(tmp_path):
    """Queries of zero attend to all real tokens alike: 1 / (1 + length) at each of them."""
    texts = ["ab", "abcd", "a", "abc", "abcdef", "ab"]
    (tmp_path / "texts.tsv").write_text("".join(f"{i % 2}\t{text}\n" for i, text in enumerate(texts * 4)))
    config = ClassificationRun(
        data=LabelledConfig(path=str(tmp_path / "texts.tsv"), tokenizer=Char(special=True), validation_fraction=0.25),
        model=ClassifierConfig(
            num_layers=1, d_model=8, max_length=8, mixer=Attention(num_heads=1), pooling=ClassToken()
        ),
    )
    data = load_data(config.data)
    config = data.complete(config)
    params = jax.device_get(make_program(config, grid(range(1))).init().params)
    lengths = data.validation["valid"].sum(1)
    assert not data.validation["valid"].all()
    even = (lengths / (1 + lengths)).sum() / lengths.sum()
    np.testing.assert_allclose(FirstKey()(config, changed(params, "query", 0.0), data), even, rtol=1e-5)


def test_queries_of_zero_are_never_saturated_and_huge_ones_always(initial, corpus):
    config, params = initial
    assert (SaturatedRows()(config, changed(params, "query", 0.0), corpus) == 0).all()
    assert (SaturatedRows()(config, changed(params, "query", 1e9), corpus) > 0.95).all()


def test_attention_to_the_first_token(initial, corpus):
    """Queries of zero attend to all that they see alike: the second token of eight gives the first one 1/2, the last
    1/8."""
    config, params = initial
    np.testing.assert_allclose(
        FirstKey()(config, changed(params, "query", 0.0), corpus), even_share(config, corpus), rtol=1e-5
    )


def test_what_fills_the_last_row_of_a_text_has_no_say(base, tmp_path):
    """The last of four rows has one label, behind a first token, which does not count."""
    (tmp_path / "text.txt").write_text("abcdefghij" * 50)
    config = base.replace({"data.path": str(tmp_path / "text.txt"), "model.max_length": 16})
    data = load_data(config.data)
    assert len(data.validation) == 50
    config = data.complete(config)
    params = changed(jax.device_get(make_program(config, grid(range(1))).init().params), "query", 30.0)
    whole = dataclasses.replace(data, validation=data.validation[:49])
    for probe in (FirstKey(), SaturatedRows(0.5)):
        found = probe(config, params, data)
        assert 0 < found[0] < 1
        np.testing.assert_allclose(found, probe(config, params, whole), rtol=1e-6)


@pytest.mark.parametrize(
    "changes",
    [{"mixer.parts": (MemoryKeyValues(),)}, {"mixer.sparsity": Linformer()}, {"downsampling": Latents(2)}],
    ids=str,
)
def test_a_first_key_that_is_no_token_is_not_measured(initial, changes):
    config, params = initial
    changes = changes | {"causal": False, "position": None}
    assert np.isnan(
        FirstKey()(
            config.replace(model=config.model.replace(changes), objective=MaskedToken(mask_token=3)), params, None
        )
    ).all()


def test_chunked_attention_is_as_saturated_as_exact(initial, corpus):
    config, params = initial
    params = changed(params, "query", 100.0)
    exact, chunked = (
        SaturatedRows(0.5)(c, params, corpus) for c in (config, config.replace({"model.mixer.backend": Chunked()}))
    )
    assert (exact > 0).all()
    np.testing.assert_array_equal(chunked, exact)


@pytest.mark.parametrize(
    "changes",
    [
        {"model.pattern": (Alternate("mixer.backend", (None, Chunked())),)},
        {"model.mixer": DeltaNet(), "model.pattern": (Alternate("mixer", (DeltaNet(), Attention(backend=Chunked()))),)},
    ],
    ids=["backends in turn", "a hybrid"],
)
def test_every_layer_with_attention_counts(base, corpus, changes):
    """Whatever computes it, and beside mixers that have none."""
    config = corpus.complete(base.replace({"model.num_layers": 2, **changes}))
    params = changed(jax.device_get(make_program(config, grid(range(1))).init().params), "query", 0.0)
    np.testing.assert_allclose(FirstKey()(config, params, corpus), even_share(config, corpus), rtol=1e-5)


def test_the_gradient_of_queries_and_keys(initial, corpus):
    """None without values; and a factor on the scores, while they are small, is on the gradient too."""
    config, params = initial
    assert (QueryKeyGradient()(config, changed(params, "value", 0.0), corpus) == 0).all()
    small = changed(params, "query", 1e-3)
    once, twice = (
        QueryKeyGradient()(config.replace({"model.mixer.scale": ConstantScale(s)}), small, corpus) for s in (0.1, 0.2)
    )
    np.testing.assert_allclose(twice, 2 * once, rtol=1e-2)


def test_the_gradient_of_query_and_key_kernels_is_theirs_alone(base, corpus):
    """Biases have one too, and what has no projections has none."""
    kernels = {"model.mixer.bias": ("query", "key", "value", "out")}
    config = corpus.complete(base.replace(kernels))
    params = jax.device_get(make_program(config, grid(range(1))).init().params)
    batch, (_, apply) = first_batch(corpus.validation_batches(config)), pure_model(config.model)

    def loss(params):
        found = config.objective(apply, params, batch, None)
        return found.loss.sum() / found.weight.sum()

    flat = jax.tree_util.tree_leaves_with_path(jax.grad(loss)(jax.tree.map(lambda a: a[0], params)))
    of = {jax.tree_util.keystr(path, simple=True, separator="."): np.square(leaf).sum() for path, leaf in flat}
    own = [square for name, square in of.items() if name.endswith(("query.kernel", "key.kernel"))]
    assert len(own) == 2
    assert sum(square for name, square in of.items() if "query.bias" in name) > 0
    np.testing.assert_allclose(QueryKeyGradient()(config, params, corpus), np.sqrt(sum(own)), rtol=1e-5)
    config = corpus.complete(base.replace({"model.mixer.heads": RandomSynthesizer(), "model.position": None}))
    params = jax.device_get(make_program(config, grid(range(2))).init().params)
    assert np.isnan(QueryKeyGradient()(config, params, corpus)).all()


def test_before_training_is_the_probe_on_what_runs_begin_from(initial, corpus, tmp_path):
    """Of their own seeds, or of what they are given."""
    config, params = initial
    study = Study("begun", config.replace(steps=1), {"a": {}, "b": {"batch_size": 8}}, seeds=2, first_seed=5)
    study = dataclasses.replace(study, probes=(probe := BeforeTraining(QueryKeyGradient()),), noise_floor=False)
    for name, given in (("seeds", None), ("given", jax.tree.map(lambda a: a[0], params))):
        report = study.run(tmp_path / name, data=corpus, initial=given, say=lambda line: None)
        begun = make_program(config, grid(seeds=(5, 6)), initial=given).init().params
        expected = QueryKeyGradient()(config, begun, corpus)
        assert (expected[0] == expected[1]) == (given is not None)
        for arm in report.arms:
            assert arm.metrics[probe.label].value == pytest.approx(expected.mean(), rel=1e-5)


def test_a_share_that_is_none():
    with pytest.raises(ConfigError, match=r"saturatedrows\.above: 1\.5 is not between 0 and 1"):
        SaturatedRows(1.5)


@pytest.mark.parametrize("probe", [SaturatedRows(), FirstKey(), QueryKeyGradient()], ids=str)
def test_a_model_without_attention(base, corpus, probe):
    config = corpus.complete(base.replace({"model.mixer": "none", "model.position": "none"}))
    params = jax.device_get(make_program(config, grid(range(2))).init().params)
    found = probe(config, params, corpus)
    assert found.shape == (2,)
    assert np.isnan(found).all()


def test_the_first_token_of_every_packed_document_is_left_out(base, tmp_path):
    """It sees only itself, so that its row is saturated whatever the model is."""
    (tmp_path / "documents.txt").write_text("|".join(["abab", "abcabc", "aab"] * 40))
    data = load_data(TextConfig(path=str(tmp_path / "documents.txt"), document_separator="|"))
    config = data.complete(base.replace({"data": TextConfig(), "model.position": ALiBi(), "model.max_length": 16}))
    params = jax.device_get(make_program(config, grid(range(2))).init().params)
    positions = data.validation_batches(config)["positions"][0, :, :-1]
    assert (positions[:, 1:] == 0).any()
    assert (SaturatedRows()(config, changed(params, "query", 0.0), data) == 0).all()


def test_padding_of_a_source_and_of_a_target_has_no_say(tmp_path):
    """Queries of zero attend to all tokens of what they see alike: those of the encoder and to it 1 / its length."""
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(list("abcd"), n)) for n in rng.integers(1, 9, 120)]
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairwise(texts)))
    model = EncoderDecoderConfig(num_layers=1, d_model=8, max_length=12, mixer=Attention(num_heads=1))
    data = load_data(PairsConfig(source=str(tmp_path / "pairs.tsv"), validation_fraction=0.3))
    config = data.complete(TranslationRun(model=model.replace(max_source_length=12), data=data.description))
    params = changed(jax.device_get(make_program(config, grid(range(1))).init().params), "query", 0.0)
    batch = first_batch(data.validation_batches(config))
    sources, targets = batch["source_valid"].sum(1), (batch["weights"] > 0).sum(1)
    assert len(set(sources)) > 1
    encoder = ((sources - 1) / sources).sum() / (sources - 1).sum()
    decoder = np.concatenate([1 / np.arange(2, count + 1) for count in targets]).mean()
    cross = ((targets - 1) / sources).sum() / (targets - 1).sum()
    np.testing.assert_allclose(FirstKey()(config, params, data), np.mean([encoder, decoder, cross]), rtol=1e-5)
