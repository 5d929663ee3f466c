"""BLEU as a number of a study."""

import sys
from dataclasses import replace

import jax
import numpy as np
import pytest

from experiments import translation
from experiments.translation import TranslationBleu, exact_match, references
from transformer.core.errors import ConfigError
from transformer.core.modules import split
from transformer.data.pairs import PairsConfig, TranslationRun, load_pairs
from transformer.data.tokenizers import UNKNOWN
from transformer.inference.tokenwise import Sample
from transformer.mixers.attention.attention import Attention
from transformer.models.build import build
from transformer.models.encoder_decoder import EncoderDecoderConfig
from transformer.runs.tokenizers import Word
from transformer.study.study import Study

TEXT = "".join(f"a b {word}\tx y z w {word}\n" for word in "cdefghij" * 4)


def test_a_test_source_that_the_model_cannot_read_is_refused_before_training(tmp_path, monkeypatch):
    (tmp_path / "pairs.tsv").write_text(TEXT)
    (tmp_path / "source.txt").write_text("a b c d e f g h\n")
    (tmp_path / "target.txt").write_text("x\n")
    files = [f"--data.{name}={tmp_path / file}" for name, file in (
        ("source", "pairs.tsv"), ("test-source", "source.txt"), ("test-target", "target.txt"))]  # fmt: skip
    words = [*files, "--model.max-source-length=6", "--model.position=learned", f"--workdir={tmp_path / 'run'}"]
    monkeypatch.setattr(sys, "argv", ["translation", *words])
    with pytest.raises(ConfigError, match=r"^data\.test_source: a text has 9 tokens, and the model: .* max_length 6"):
        translation.main()
    assert not (tmp_path / "run").exists()


def test_a_split_beside_is_trained_by_a_command_of_its_own(tmp_path, monkeypatch):
    """Which names no other split, so that its folder alone can be resumed; random strategies have a key."""
    commands = []
    monkeypatch.setattr(translation, "run", lambda command, strategies: commands.append(command))
    monkeypatch.setattr(sys, "argv", ["translation", "scan", f"--workdir={tmp_path}"])
    translation.main()
    assert [(each.data.split, each.also, each.workdir) for each in commands] == [
        ("simple", "usual", tmp_path),
        ("length", "none", tmp_path / "length"),
    ]


def test_random_translations(pairs):
    sizes = {"d_model": 8, "num_layers": 1, "max_length": 8, "max_source_length": 8}
    model = EncoderDecoderConfig(**sizes, mixer=Attention(num_heads=2))
    config = pairs.complete(TranslationRun(model=model, data=pairs.description))
    params, apply = split(build(config.model, key=jax.random.key(0)))
    some = translation.first_sentences(pairs, 3)
    once, again = (translation.translate(config, apply, params, some, Sample(top_k=3)) for _ in range(2))
    assert len(once) == 3
    assert once == again


@pytest.fixture
def pairs(tmp_path):
    (tmp_path / "pairs.tsv").write_text(TEXT)
    return load_pairs(PairsConfig(source=str(tmp_path / "pairs.tsv"), validation_fraction=0.25))


def test_spaces_are_no_words():
    assert exact_match(["a b", "a b", "a b"], [" a  b ", "a b", "ab"]) == 2 / 3


def test_an_unknown_word_makes_a_translation_wrong(tmp_path):
    """It is written, where it was left out."""
    (tmp_path / "pairs.tsv").write_text("x y\ta house red\n" * 40)
    data = load_pairs(PairsConfig(source=str(tmp_path / "pairs.tsv"), tokenizer=Word()))
    right = data.tokenizer.encode("a house red")
    assert exact_match([data.text(right)], ["a house red"]) == 1
    assert exact_match([data.text(np.insert(right, 1, UNKNOWN))], ["a house red"]) == 0


def test_references_are_in_lower_case_by_the_rule_of_the_tokenizer(tmp_path):
    """Which has one small sigma, where Python has two."""
    (tmp_path / "pairs.tsv").write_text("x y\tΟΔΟΣ A\n" * 40, encoding="utf-8")
    data = load_pairs(PairsConfig(source=str(tmp_path / "pairs.tsv"), tokenizer=Word(lowercase=True)))
    assert exact_match([data.text(data.tokenizer.encode(data.test[1][0]))], references(data)[:1]) == 1
    assert references(data)[0] == "οδοσ a"


def test_bleu_is_a_number_for_each_run_and_may_be_what_verdicts_are_made_of(pairs, monkeypatch):
    sizes = {"d_model": 8, "num_layers": 1, "max_length": 8, "max_source_length": 8}
    model = EncoderDecoderConfig(**sizes, mixer=Attention(num_heads=2))
    config = pairs.complete(TranslationRun(model=model, data=pairs.description))
    told = iter([pairs.test[1][:3], ["no such words at all"] * 3])
    monkeypatch.setattr(translation, "translate", lambda config, apply, params, data, strategy: next(told))
    two = {"kernel": np.zeros((2, 1), np.float32)}
    found = TranslationBleu(sentences=3)(config, two, pairs)
    np.testing.assert_allclose(found, [100, 0])
    assert TranslationBleu.higher_is_better
    upper = replace(pairs, test=(pairs.test[0], [text.upper() for text in pairs.test[1]]))
    assert references(upper) == upper.test[1]
    study = Study("bleu", config, {"a": {}, "b": {"model.d_model": 16}}, metric="BLEU", probes=(TranslationBleu(),))
    assert study.metric == "BLEU"


def test_a_split_is_trained_once(monkeypatch):
    asked = []
    monkeypatch.setattr(translation, "run", lambda command, _: asked.append(command.data.split))
    for words, runs in {
        "simple": ["simple", "length"],
        "length": ["length"],
        "length --also none": ["length"],
        "length --also add_jump": ["length", "add_jump"],
    }.items():
        asked.clear()
        monkeypatch.setattr(sys, "argv", ["translation", "--data.split", *words.split()])
        translation.main()
        assert asked == runs


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "--data.source=x.tsv --also length",
            r"^also: length is a split of SCAN, and data\.source is given; use none$",
        ),
        ("--also simple", r"^also: unknown value 'simple'"),
        ("--data.split length --also length", r"^also: length is data\.split itself; use none$"),
        ("--decoding beam(sise=3)", r"^decoding: beam has no field 'sise'; did you mean 'size'\?$"),
        ("multi30k-cpu", r"^data\.source: the presets of Multi30k are for pairs of yours; give it$"),
        ("--metric blue", r"^metric: unknown value 'blue'; did you mean 'bleu'\?$"),
    ],
)
def test_options_that_would_change_nothing_are_refused(monkeypatch, words, message):
    """Before anything is read."""
    monkeypatch.setattr(translation, "run", lambda *_: pytest.fail("it ran"))
    monkeypatch.setattr(sys, "argv", ["translation", *words.split()])
    with pytest.raises(ConfigError, match=message):
        translation.main()


def test_own_texts_have_no_other_split(monkeypatch):
    asked = []
    monkeypatch.setattr(translation, "run", lambda command, _: asked.append(command.data.source))
    monkeypatch.setattr(sys, "argv", ["translation", "--data.source=x.tsv"])
    translation.main()
    assert asked == ["x.tsv"]


def test_numbers_of_sentences_are_counts(pairs):
    with pytest.raises(ConfigError, match=r"^observed: -5 is negative$"):
        translation.SCAN.replace(observed=-5)
    with pytest.raises(ConfigError, match=r"^decoding: none is given; the last one gives the metric$"):
        translation.SCAN.replace(decoding=())
    with pytest.raises(ConfigError, match=r"^translation_bleu\.sentences: 0 is not a positive number$"):
        translation.TranslationBleu(sentences=0)
