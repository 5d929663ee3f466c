"""A run read back from its folder."""

import dataclasses
import importlib
import json
import re
import sys
from dataclasses import dataclass
from unittest import mock

import chex
import jax
import numpy as np
import pytest

from transformer.activations.activation import Activation
from transformer.core.errors import ConfigError
from transformer.core.sources import sources, used_by
from transformer.data.arrays import arrays
from transformer.data.dataset import load_data
from transformer.data.labelled import ClassificationRun
from transformer.data.pairs import PairsConfig, TranslationRun
from transformer.data.puzzles import AlgorithmicConfig, AlgorithmicRun
from transformer.data.tagged import TaggingRun
from transformer.data.tasks.rewriting import Sort
from transformer.data.tokenizer_training import make_tokenizer
from transformer.data.tokenizers import END, START, CharTokenizer, encode_open, read_tokenizer
from transformer.inference.evaluation import TextModel
from transformer.inference.processors import Forbidden
from transformer.inference.tokenwise import Greedy, Sample
from transformer.models.encoder_decoder import EncoderDecoderConfig
from transformer.norms.norm import Norm
from transformer.objectives.tokens import PrefixToken
from transformer.runs.config import Replica, RunConfig, grid
from transformer.runs.data import TextConfig
from transformer.runs.mesh import MeshConfig
from transformer.runs.rules import ScheduleFree
from transformer.runs.tokenizers import FromFile, Tokenization, Word
from transformer.training.checkpoint import steps
from transformer.training.loop import train
from transformer.training.stored import StoredRun, load_run

REPLICAS = (Replica(seed=0), Replica(seed=1, learning_rate=1e-4))


@pytest.mark.parametrize("changes", [{}, {"average_last": 3}, {"optimizer.rule": ScheduleFree()}], ids=str)
def test_what_was_trained_is_what_is_loaded(config, corpus, tmp_path, changes):
    data = TextConfig(path=str(tmp_path / "text.txt"))
    config = config.replace({"data": data, **changes})
    outcome = train(config, REPLICAS, corpus, tmp_path / "run")
    run = load_run(tmp_path / "run")
    assert (run.config, run.replicas, run.step) == (config, REPLICAS, config.steps)
    assert run.data.fingerprint == corpus.fingerprint
    assert run.tokenizers == corpus.tokenizers
    chex.assert_trees_all_equal(run.all_params, outcome.all_params)
    assert run.rows() == outcome.rows()
    assert "step" not in repr(run)
    assert repr(dataclasses.replace(run, step=3)).endswith("], step=3 of 12)")
    assert 0 < run.accuracy[0] == outcome.accuracy[0]
    chex.assert_trees_all_equal(run.params(), run.params(int(outcome.validation_loss.argmin())))
    chex.assert_trees_all_equal(run.params(1), jax.tree.map(lambda a: a[1], outcome.all_params))
    tokens = corpus.validation_batches(config)["tokens"][0, :, :-1]
    assert jax.jit(run.apply)(run.params(0), tokens).shape == (*tokens.shape, 4)


def test_devices_need_not_divide_the_batch_of_training(config, corpus, tmp_path):
    train(config.replace(batch_size=3, steps=1), (Replica(seed=0),), corpus, tmp_path / "run")
    run = load_run(tmp_path / "run", MeshConfig(data=2, fully_sharded=True))
    chex.assert_trees_all_equal(run.params(), load_run(tmp_path / "run").params())
    assert all(len(leaf.sharding.device_set) == 2 for leaf in jax.tree.leaves(run.all_params))


def test_an_objective_may_load_its_teacher_while_it_is_traced(config, corpus, tmp_path):
    """Parameters are arrays there, and no device is asked for what another one has."""
    outcome = train(config, (Replica(seed=0),), corpus, tmp_path / "run")
    mesh = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Explicit,))
    tokens = corpus.validation_batches(config)["tokens"][0, :, :-1]

    def taught(tokens):
        teacher = load_run(tmp_path / "run")
        assert not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(teacher.all_params))
        return teacher.apply(teacher.params(), tokens)

    with jax.set_mesh(mesh):
        answers = jax.jit(taught)(tokens)
    np.testing.assert_allclose(answers, outcome.apply(outcome.params(), tokens), atol=1e-5)


def test_a_tokenizer_from_elsewhere_keeps_putting_tokens_around_a_text(config, tmp_path):
    pytest.importorskip("tokenizers")
    (tmp_path / "tokenizer.json").write_text(make_tokenizer(Word(), ["a word"]).definition)
    for special in (False, True):
        described = config.replace({"data": TextConfig(tokenizer=FromFile("gone.json", special=special))})
        run = StoredRun(tmp_path, described, (), {}, *[np.zeros(0)] * 4, 0, "")
        assert run.tokenizers["tokenizer"] == make_tokenizer(described.data.tokenizer, (), tmp_path / "tokenizer.json")
        assert run.tokenizers["tokenizer"].to_json().get("around", False) == special


@dataclass(frozen=True)
class Lowercase(Tokenization):
    keeps: bool = True


class LowercaseTokenizer(CharTokenizer):
    def encode(self, text):
        return super().encode(text.lower())


@make_tokenizer.register
def _(config: Lowercase, texts, stored=None):
    if config.keeps and stored is not None:
        return LowercaseTokenizer(read_tokenizer(stored).characters)
    return LowercaseTokenizer.of("".join(texts))


def test_a_tokenizer_of_one_s_own_is_read_back_by_its_rule(config, tmp_path):
    (tmp_path / "tokenizer.json").write_text(make_tokenizer(Lowercase(), ["to be"]).definition)
    for keeps in (True, False):
        described = config.replace({"data": TextConfig(tokenizer=Lowercase(keeps=keeps))})
        run = StoredRun(tmp_path, described, (), {}, *[np.zeros(0)] * 4, 0, "")
        if keeps:
            np.testing.assert_array_equal(
                run.tokenizers["tokenizer"].encode("TO BE"), make_tokenizer(Lowercase(), ["to be"]).encode("to be")
            )
        else:
            with pytest.raises(ConfigError, match=r"^data\.tokenizer: the rule of .* makes another tokenizer than .*"):
                _ = run.tokenizers


@pytest.mark.parametrize("run", [ClassificationRun(), TaggingRun()], ids=["classes", "tags"])
def test_generated_expressions_have_symbols_whatever_the_config_says(run, tmp_path):
    data = load_data(run.data)
    (tmp_path / "tokenizer.json").write_text(data.tokenizer.definition)
    stored = StoredRun(tmp_path, run, (), {}, *[np.zeros(0)] * 4, 0, data.fingerprint)
    assert stored.tokenizers == data.tokenizers
    assert stored.classes == data.classes


def test_a_text_that_goes_on_has_no_end_token(config, tmp_path):
    """A tokenizer that puts tokens around a text puts those before it alone where it is continued or scored."""
    library = pytest.importorskip("tokenizers")
    words = library.Tokenizer.from_str(make_tokenizer(Word(), ["to be or not"]).definition)
    around = library.processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[(name, words.token_to_id(name)) for name in ("<s>", "</s>")]
    )
    words.post_processor = around
    (tmp_path / "text.txt").write_text("to be or not " * 60)
    path = tmp_path / "tokenizer.json"
    path.write_text(words.to_str())
    data = TextConfig(path=str(tmp_path / "text.txt"), tokenizer=FromFile(str(path), special=True))
    run = train(config.replace({"data": data, "model.vocab_size": None}), grid(1), load_data(data), tmp_path / "run")
    tokenizer = run.tokenizers["tokenizer"]
    whole = tokenizer.encode("to be")
    opened = encode_open(tokenizer, "to be")
    np.testing.assert_array_equal(opened, whole[:-1])
    assert (whole[0], whole[-1]) == (START, END)
    assert len(run.score("to be")) == 2
    model = TextModel(run.apply, run.params(), run.config.model, tokenizer)
    np.testing.assert_allclose(model.log_likelihoods([("to", " be")])[0][0], run.score("to be")[-1], rtol=1e-5)
    assert encode_open(CharTokenizer.of("ab"), "ab").tolist() == [0, 1]


def test_the_folder_of_a_run_under_way_is_left_as_it_is(config, corpus, tmp_path):
    workdir = tmp_path / "run"
    train(config.replace(checkpoint_every=5, evaluate_every=5), REPLICAS, corpus, workdir)
    checkpoints = workdir / "checkpoints"
    (checkpoints / f"{steps(checkpoints)[-1]:08d}").rename(checkpoints / ".00000012.partial")
    with (workdir / "metrics.jsonl").open("a") as file:
        file.write('{"step": 12, "repl')
    before = sorted(workdir.rglob("*"))
    run = load_run(workdir)
    evaluated = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()[:-1]]
    at_step = [line["validation_loss"] for line in evaluated if line["step"] == 10 and "validation_loss" in line]
    assert run.step == 10
    np.testing.assert_array_equal(run.validation_loss, at_step)
    assert sorted(workdir.rglob("*")) == before


def test_a_diverged_replica_has_no_loss_and_is_never_the_best(config, corpus, tmp_path):
    replicas = (Replica(learning_rate=1e30), Replica(seed=1))
    config = config.replace({"optimizer.warmup_steps": 0, "optimizer.clip_norm": None})
    outcome = train(config, replicas, corpus, tmp_path / "run")
    run = load_run(tmp_path / "run")
    np.testing.assert_equal(run.rows(), outcome.rows())
    assert run.healthy.tolist() == outcome.healthy.tolist() == [False, True]
    chex.assert_trees_all_equal(run.params(), run.params(1), outcome.params())


def test_a_replica_that_was_frozen_has_no_loss_though_its_parameters_have_one(config, corpus, tmp_path):
    config = config.replace({"optimizer.skip_limit": 1, "optimizer.skip_above": 1e-9})
    outcome = train(config, REPLICAS, corpus, tmp_path / "run")
    line = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert line["validation_loss"] is None
    run = load_run(tmp_path / "run")
    assert np.isnan(outcome.validation_loss).all()
    assert np.isnan(run.validation_loss).all()


def test_other_data_than_it_was_trained_on_is_no_data_of_a_run(config, corpus, tmp_path):
    text = tmp_path / "text.txt"
    train(config.replace({"data": TextConfig(path=str(text))}), REPLICAS, corpus, tmp_path / "run")
    text.write_text("abacabae" * 40)
    with pytest.raises(ConfigError, match=r"was trained on other data than .*text\.txt"):
        _ = load_run(tmp_path / "run").data


def test_what_cannot_be_loaded(config, corpus, tmp_path):
    workdir = tmp_path / "run"
    with pytest.raises(ConfigError, match=r"holds no config.json of a run; there is no such folder$"):
        load_run(workdir)
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "study.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"; it is that of a study, whose report read_study reads"):
        load_run(tmp_path / "study")
    train(config, REPLICAS, corpus, workdir)
    with pytest.raises(ConfigError, match=r"replica: 2 of .*, which has 0 to 1"):
        load_run(workdir).params(2)
    checkpoints = workdir / "checkpoints"
    (checkpoints / "00000012").rename(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="no checkpoint yet"):
        load_run(workdir)


def test_the_kind_of_a_run_comes_back():
    model = EncoderDecoderConfig(vocab_size=5, source_vocab_size=6)
    config = TranslationRun(model=model, data=PairsConfig(split="length"), steps=7)
    assert RunConfig.from_json(config.to_json()) == config
    assert "kind" not in RunConfig().to_json()


@dataclass(frozen=True)
class Twice(Norm):
    factor: float = 2.0

    def __call__(self, x_BLD, params):
        return self.factor * x_BLD


def test_a_variant_that_is_edited_is_another_choice(config, corpus, tmp_path, monkeypatch):
    """Nothing of a run is taken for one of a class whose text has changed, or of another class of the name."""
    config = config.replace({"data": TextConfig(path=str(tmp_path / "text.txt")), "model.norm": Twice()})
    train(config, REPLICAS, corpus, tmp_path / "run")
    load_run(tmp_path / "run")
    monkeypatch.setattr(Twice, "_source", Twice._source.replace("*", "/"))
    with pytest.raises(ConfigError, match="Twice is not defined here as it was for the run"):
        load_run(tmp_path / "run")
    with pytest.raises(ConfigError, match=r"differs in sources\.Twice"):
        train(config, REPLICAS, corpus, tmp_path / "run", when_not_empty="resume")


def test_what_a_dataclass_makes_uses_nothing():
    assert used_by(Twice) == {}


def test_a_choice_of_the_package_has_no_source(config):
    assert sources(config) == {}
    assert list(sources(config.replace({"model.norm": Twice()}))) == ["Twice"]


def test_the_code_of_a_class_that_has_no_source_stands_in_for_it(config):
    """As of one typed into an interpreter: what it does counts, in nested functions too, and not when it was typed."""

    def typed(body):
        scope = {"Activation": Activation, "dataclass": dataclass, "__name__": "__main__"}
        exec(f"@dataclass(frozen=True)\nclass Typed(Activation):\n    def __call__(self, x): {body}", scope)
        return sources(config.replace({"model.feed_forward.activation": scope["Typed"]()}))["Typed"]

    bodies = ("return x", "return 2 * x", "return 3 * x", "return (lambda y: 2 * y)(x)", "return (lambda y: 3 * y)(x)")
    assert len({typed(body) for body in bodies}) == len(bodies)
    assert typed("return x in {0, 8}") == typed("return x in {8, 0}")


def test_what_a_class_uses_is_part_of_it(config, tmp_path, monkeypatch):
    """A constant, a function, and what that calls, of its own file or of another one; not what is installed."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "helpers_of_it.py").write_text("def deeper(x):\n    return x\n")
    head = "import jax\nimport numpy as np\nfrom dataclasses import dataclass\n"
    head += "from transformer.activations.activation import Activation\nfrom helpers_of_it import deeper\n"
    text = head + (
        "FACTOR = 2.0\nTABLE = np.arange(3)\n\n\n@jax.jit\ndef helper(x):\n    return deeper(x) * FACTOR\n\n\n"
        "def unused(x):\n    return x\n\n\n@dataclass(frozen=True)\nclass Uses(Activation):\n    slope: float = 1.0\n\n"
        "    def __call__(self, x):\n        return [helper(y) for y in x][0] + TABLE[0]\n"
    )

    def hashed(module, text):
        (tmp_path / f"{module}.py").write_text(text)
        importlib.invalidate_caches()
        made = importlib.import_module(module)
        made.helper.__wrapped__.__module__ = made.Uses.__module__ = made.Uses.__call__.__module__ = "own"
        return sources(config.replace({"model.feed_forward.activation": made.Uses()}))["Uses"]

    first = hashed("uses_a", text)
    assert hashed("uses_b", text.replace("def unused(x):\n    return x", "def unused(x):\n    return 2 * x")) == first
    changes = {
        "FACTOR = 2.0": "FACTOR = 3.0",
        "np.arange(3)": "np.arange(4)",
        "deeper(x) * FACTOR": "deeper(x) + FACTOR",
    }
    for number, (old, new) in enumerate(changes.items()):
        assert hashed(f"uses_{number}", text.replace(old, new)) != first
    (tmp_path / "helpers_of_it.py").write_text("def deeper(x):\n    return -x\n")
    sys.modules.pop("helpers_of_it")
    assert hashed("uses_c", text) != first


def test_a_flag_of_a_variant_is_in_its_source_and_a_field_is_not():
    def made(flag, default):
        @dataclass(frozen=True)
        class Flagged(Norm):
            mixes_tokens = flag
            factor: float = default

            def __call__(self, x_BLD, params):
                return x_BLD

        return Flagged._source

    assert made(False, 1.0) == made(False, 2.0)
    assert made(False, 1.0) != made(True, 1.0)


def test_a_question_gets_an_answer(config, tmp_path, monkeypatch):
    """As many tokens as the longest example has, or up to the end that is chosen before."""
    puzzle = {"data": AlgorithmicConfig(task=Sort(items=3), test=Sort(items=4), examples=32, validation_examples=4)}
    config = AlgorithmicRun(**vars(config) | puzzle).replace({"model.vocab_size": None, "model.max_length": 16})
    run = train(config.replace(steps=1), REPLICAS, load_data(config.data), tmp_path / "run")
    never = Greedy(processors=(Forbidden((END,)),))
    assert len(run.generate("7 3 5 =", strategy=never).split()) == 10
    assert len(run.generate("7 3 5 =", strategy=never, num_tokens=2).split()) == 6
    made = mock.Mock(return_value=np.int32([END]))
    monkeypatch.setattr("transformer.training.asked.continuation", made)
    assert run.generate("7 3 5 =") == "7 3 5 ="
    assert made.call_args.kwargs["stop"] == END


def test_seeds_of_the_best_learning_rate_are_those_that_count(config, corpus, tmp_path):
    outcome = train(config, grid(range(2), (1e-2, 1e-5)), corpus, tmp_path / "run")
    assert outcome.at_best_rate.tolist() == [True, True, False, False]
    by_rate = {rate: losses.tolist() for rate, losses in outcome.losses_by_rate.items()}
    assert by_rate == {1e-5: outcome.validation_loss[2:].tolist(), 1e-2: outcome.validation_loss[:2].tolist()}
    assert re.fullmatch(r"Outcome\('.*/run', validation_loss=\[(\d\.\d{4}, ){3}\d\.\d{4}\]\)", repr(outcome))
    assert repr(load_run(tmp_path / "run")) == repr(outcome).replace("Outcome", "StoredRun")
    some = dataclasses.replace(outcome, validation_loss=np.array([0.1, np.nan, 1.2, 1.2]))
    assert some.best_rate == 1e-2  # (0.1 + a guess) / 2 is less than 1.2: one failure bans no rate
    assert some.at_best_rate.tolist() == [True, False, False, False]
    most = dataclasses.replace(outcome, validation_loss=np.array([1.1, np.nan, 1.2, 1.2]))
    assert most.best_rate == 1e-5
    worse = dataclasses.replace(outcome, validation_loss=np.array([2.2, np.nan, 2.0, 2.4]))
    assert worse.best_rate == 1e-5  # a failure costs no less than the worst run, here more than a guess
    with pytest.raises(ConfigError, match=r"learning_rates: 0\.01 is given twice"):
        grid(range(2), (1e-2, 1e-2))


def test_a_word_that_says_nothing_about_a_folder(config, corpus, tmp_path):
    with pytest.raises(ConfigError, match="when_not_empty: unknown value 'overwrit'; did you mean 'overwrite'"):
        train(config, REPLICAS, corpus, tmp_path / "run", when_not_empty="overwrit")  # pyright: ignore[reportArgumentType] wrong on purpose


def test_text_in_and_text_out(config, corpus, tmp_path):
    """The outcome and the run that is loaded say the same; a text has a log-probability for each token but one."""
    config = config.replace({"data": TextConfig(path=str(tmp_path / "text.txt"))})
    outcome, run = train(config, REPLICAS, corpus, tmp_path / "run"), load_run(tmp_path / "run")
    texts = {seed: run.generate("abac", num_tokens=12, seed=seed, strategy=Sample(temperature=9.0)) for seed in (0, 1)}
    assert texts[0] == outcome.generate("abac", num_tokens=12, strategy=Sample(temperature=9.0)) != texts[1]
    assert texts[1].startswith("abac")
    assert len(texts[1]) == 16
    assert len(run.generate("abac")) == 204
    tokens, params = corpus.tokenizer.encode("abacabad"), run.params(1)
    expected = jax.nn.log_softmax(run.apply(params, tokens[None, :-1]))[0, np.arange(7), tokens[1:]]
    np.testing.assert_allclose(run.score("abacabad", replica=1), expected, rtol=1e-5)
    assert run.score("abacabad", replica=0).mean() != run.score("abacabad", replica=1).mean()
    with pytest.raises(ConfigError, match="max_length"):
        run.generate("abac", num_tokens=12, beyond="refuse")
    with pytest.raises(ConfigError, match="tokenizer: no token for 'e' at character 1"):
        run.generate("be")
    with pytest.raises(ConfigError, match="score: str is needed, and ndarray is given"):
        run.score(np.array([1, 2]))
    with pytest.raises(ConfigError, match="generate: the text has no tokens"):
        run.generate("")
    with pytest.raises(ConfigError, match=r"translate: .* holds no encoder–decoder of pairs of texts"):
        run.translate("a")
    encoder = dataclasses.replace(run, config=TranslationRun())
    with pytest.raises(ConfigError, match="holds no causal language model of text"):
        encoder.generate("a")
    with pytest.raises(ConfigError, match=r"lm_eval_model: .* holds no causal language model of text"):
        encoder.lm_eval_model()
    prefixed = dataclasses.replace(run, config=config.replace(objective=PrefixToken()))
    with pytest.raises(ConfigError, match="was trained with prefixes, which benchmarks do not mark"):
        prefixed.lm_eval_model()
    with pytest.raises(ConfigError, match=r"^score: .* was trained with prefixes, and a text marks none$"):
        prefixed.score("ab")


def test_a_model_of_numbers_says_how_it_is_decoded(config, tmp_path):
    data = arrays(np.arange(60).reshape(12, 5) % 4)
    run = train(config.replace({"data": TextConfig(), "steps": 1}), REPLICAS, data, tmp_path / "run")
    with pytest.raises(ConfigError, match=r"generate\(run\.apply, run\.params\(\), tokens\) is for numbers"):
        run.generate("a")
    with pytest.raises(ConfigError, match=r"trained on other data than .*; data of your own are not kept in it"):
        _ = load_run(tmp_path / "run").data
