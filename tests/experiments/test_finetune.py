"""A run that begins with a published model."""

import json
import re
import subprocess
import sys

import jax
import numpy as np
import pytest

from experiments import finetune
from transformer import pretrained
from transformer.core.errors import ConfigError
from transformer.core.modules import split
from transformer.data.corpus import load_corpus
from transformer.models.build import build
from transformer.models.pooling import FirstToken, MeanPooling
from transformer.pretrained.bart import BART
from transformer.pretrained.bert import BERT, BERT_CLASSIFIER
from transformer.pretrained.gpt2 import GPT2
from transformer.pretrained.names import flat
from transformer.runs.config import Replica, RunConfig
from transformer.runs.data import TextConfig
from transformer.runs.optimizer import OptimizerConfig
from transformer.runs.tokenizers import Byte, FromFile
from transformer.training.loop import train

pytest.importorskip("safetensors")
SIZES = {
    "vocab_size": 256,
    "max_length": 8,
    "d_model": 8,
    "mixer.num_heads": 2,
    "num_layers": 1,
    "feed_forward.d_ff": 12,
}


def published(tmp_path, architecture, **sizes):
    config = architecture.base.replace(**SIZES | sizes)
    pretrained.save(tmp_path / "model", config, split(build(config, key=jax.random.key(3)))[0])
    return str(tmp_path / "model"), config


def test_a_run_begins_with_given_parameters(tmp_path):
    """In every replica, whatever its seed; and a run that began otherwise is another run."""
    folder, model = published(tmp_path, GPT2)
    text = tmp_path / "text"
    text.write_text("to be or not to be, " * 40)
    command = finetune.of_text(model, folder)
    data = load_corpus(command.data.__class__(path=str(text)))
    config = RunConfig(model=model, steps=1, batch_size=2, optimizer=OptimizerConfig(learning_rate=0.0))
    given = finetune.fitting(folder, model)
    replicas, run = [Replica(seed=0), Replica(seed=1)], tmp_path / "run"
    outcome = train(config, replicas, data, run, initial=given)
    for name, leaf in flat(jax.device_get(outcome.all_params)).items():
        np.testing.assert_array_equal(leaf, np.stack([flat(given)[name]] * 2))
    for other in (None, jax.tree.map(lambda a: a + 1, given)):
        with pytest.raises(ConfigError, match="another run, which differs in initial"):
            train(config, replicas, data, run, initial=other, when_not_empty="resume")


def test_shorter_texts_take_the_first_positions(tmp_path):
    folder, model = published(tmp_path, GPT2)
    whole = pretrained.load(folder)[1]["position"]["table"]
    np.testing.assert_array_equal(finetune.fitting(folder, model.replace(max_length=5))["position"]["table"], whole[:5])
    classes = finetune.of_classes(model, folder).model.replace(num_classes=3, max_length=5, causal=False, registers=2)
    np.testing.assert_array_equal(finetune.fitting(folder, classes)["position"]["table"], whole[:7])
    with pytest.raises(ConfigError, match=r"position/table is \(9, 8\) here, in the folder \(8, 8\)"):
        finetune.fitting(folder, model.replace(max_length=9))


def test_a_classifier_of_a_masked_model(tmp_path, capsys):
    """The layers are taken over, the output is new; a classifier keeps its own pooling."""
    folder, model = published(tmp_path, BERT, **{"embedding.types": 2})
    command = finetune.of_classes(model, folder)
    assert command.model.pooling == MeanPooling()
    taken = flat(finetune.fitting(folder, command.model.replace(num_classes=3)))
    assert "new: head/bias, head/kernel; left: logits/output/bias" in capsys.readouterr().out
    for name, leaf in flat(pretrained.load(folder)[1]).items():
        assert name[0] == "logits" or np.array_equal(taken[name], leaf)
    own = BERT_CLASSIFIER.base.replace(**SIZES, num_classes=5)
    assert finetune.of_classes(own, folder).model.pooling == FirstToken()
    assert finetune.of_classes(own, folder).model.num_classes is None


def test_a_classifier_reads_the_tokens_of_the_published_model(tmp_path, monkeypatch, capsys):
    """And where these are not in tokenizer.json another tokenizer has to be asked for."""
    library = pytest.importorskip("tokenizers")
    folder, _ = published(tmp_path, BERT, **{"embedding.types": 2})
    (tmp_path / "texts").write_text("good\tto be\nbad\tnot to be\n" * 20)
    words = ["finetune", "classes", "--from", folder, "--data.path", str(tmp_path / "texts"), "--dry-run"]
    monkeypatch.setattr(sys, "argv", words)
    (tmp_path / "model" / "vocab.txt").write_text("to\nbe\n")
    with pytest.raises(ConfigError, match=r"has vocab\.txt and no tokenizer\.json"):
        finetune.main()
    tokens = library.Tokenizer(library.models.WordLevel({"?": 0, "to": 1, "be": 2}, unk_token="?"))
    tokens.pre_tokenizer = library.pre_tokenizers.Whitespace()
    tokens.save(f"{folder}/tokenizer.json")
    with pytest.raises(SystemExit):
        finetune.main()
    assert f"data.tokenizer    file(path='{folder}/tokenizer.json'" in re.sub(" +", "    ", capsys.readouterr().out)


def test_models_that_have_no_place(tmp_path):
    with pytest.raises(ConfigError, match="no causal language model"):
        finetune.of_text(BERT.base.replace(**SIZES), "bert")
    with pytest.raises(ConfigError, match="is a EncoderDecoderConfig, no model of tokens alone"):
        finetune.of_classes(BART.base, "bart")
    with pytest.raises(ConfigError, match="give --from FOLDER"):
        finetune.asked(["--from"])
    assert finetune.asked(["classes", "--from=bert"]) == finetune.asked(["--from", "bert"]) == "bert"


def test_a_model_of_runs_that_diverged_is_not_kept(tmp_path):
    """Its last finite parameters would pass for a model that was trained."""
    _, model = published(tmp_path, GPT2)
    path = tmp_path / "text"
    path.write_text("to be or not to be, " * 20)
    config = RunConfig(model=model.replace(vocab_size=None, max_length=4), steps=2, batch_size=2)
    config = config.replace({"data.path": str(path), "optimizer.learning_rate": 1e30, "optimizer.warmup_steps": 0})
    trained = train(config, workdir=tmp_path / "run")
    assert not trained.healthy.any()
    assert finetune.keep(trained, tmp_path / "model") == "no model is kept: every replica diverged"
    assert not (tmp_path / "run" / "model").exists()


def test_a_kept_model_has_the_published_tokenizer_and_the_ids_of_its_special_tokens(tmp_path):
    """Those of the published folder where its tokenizer is used, and none with another one."""
    library = pytest.importorskip("tokenizers")
    folder, model = published(tmp_path, GPT2)
    tokens = library.Tokenizer(library.models.WordLevel({"<eos>": 0, "to": 1, "be": 2, "?": 3}, unk_token="?"))
    tokens.pre_tokenizer = library.pre_tokenizers.Whitespace()
    tokens.save(f"{folder}/tokenizer.json")
    fields = json.loads((tmp_path / "model" / "config.json").read_text()) | {"eos_token_id": 7}
    (tmp_path / "model" / "config.json").write_text(json.dumps(fields))
    (tmp_path / "model" / "generation_config.json").write_text('{"eos_token_id": 7}')
    path = tmp_path / "text"
    path.write_text("to be or not to be, " * 40)
    for name, tokenizer in {"own": FromFile(f"{folder}/tokenizer.json"), "other": Byte()}.items():
        data = TextConfig(path=str(path), tokenizer=tokenizer)
        trained = train(RunConfig(model=model, data=data, steps=1, batch_size=2), workdir=tmp_path / name)
        assert finetune.keep(trained, tmp_path / "model") == f"the model is in {tmp_path / name / 'model'}"
        kept = tmp_path / name / "model"
        assert (kept / "tokenizer.json").exists() == (name == "own")
        assert json.loads((kept / "config.json").read_text())["eos_token_id"] == (7 if name == "own" else None)
        assert (kept / "generation_config.json").exists() == (name == "own")


LORA = ["--model.weights", "low_rank(rank=2)", "--optimizer.groups", "[group('*.weights.*'), group('*', rate=0)]"]


@pytest.mark.parametrize("more", [[], LORA])
def test_the_command(more, tmp_path):
    """Both arms to their table, the picture, the numbers and a model that can be loaded again, as what it was."""
    folder, config = published(tmp_path, GPT2)
    words = ["--from", folder, "--steps", "2", "--evaluate-every", "1", "--batch-size", "2", "--model.max-length", "6"]
    words += ["--data.tokenizer", "byte", "--learning-rates", "1e-3", "--workdir", str(tmp_path / "out")]
    text = tmp_path / "text"
    text.write_text("to be or not to be, " * 40)
    command = [sys.executable, "-m", "experiments.finetune", *words, *more, "--data.path", str(text)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["pretrained"]["curves"]["steps"] == [1, 2]
    assert result["scratch"]["learning_rate"] == 1e-3
    assert (tmp_path / "out" / "curves.png").stat().st_size > 1000
    kept, params = pretrained.load(tmp_path / "out" / "pretrained" / "model")
    assert kept == config.replace(max_length=6)
    before, after = flat(pretrained.load(folder)[1]), flat(params)
    moved = {name[-1] for name in before if name != ("position", "table") and (before[name] != after[name]).any()}
    assert (moved == {"kernel"}) == bool(more)
