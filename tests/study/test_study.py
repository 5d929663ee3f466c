"""A study: cells, selection and estimation, the report, and variants that only a script knows."""

import dataclasses
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import transformer as T
from tests.study.conftest import tiny
from transformer.core.errors import ConfigError
from transformer.core.files import read_sealed
from transformer.core.json import fingerprint
from transformer.core.parameters import ONES, Parameter
from transformer.data.corpus import Corpus, load_corpus
from transformer.data.dataset import load_data
from transformer.data.pictures import ImageConfig, VisionRun
from transformer.data.puzzles import AlgorithmicConfig
from transformer.data.tasks.arithmetic import Addition
from transformer.mixers.attention.attention import Attention
from transformer.models.config import ModelConfig
from transformer.models.images import VisionConfig
from transformer.norms.norm import Norm, RMSNorm
from transformer.objectives.chunked import ChunkedNextToken
from transformer.objectives.objective import NextToken
from transformer.objectives.tokens import PrefixToken
from transformer.positions.position import Position
from transformer.positions.relative import ALiBi
from transformer.runs.config import RunConfig, grid
from transformer.runs.optimizer import ParameterGroup
from transformer.study.analyse import read_study
from transformer.study.arms import prepared
from transformer.study.designs import leave_one_out
from transformer.study.probes import LongerText, Probe
from transformer.study.record import read_record
from transformer.study.report import Report
from transformer.study.running import NOISE, StudyError
from transformer.study.runs import ArmRuns
from transformer.study.statistics import detectable_difference
from transformer.study.study import Study
from transformer.training.loop import train
from transformer.training.metrics import METRICS


@dataclass(frozen=True)
class PowerNorm(Norm):
    """A norm that the package does not know: x / (mean |x|^p)^(1/p)."""

    power: float = 2.0

    def parameters(self, d_model):
        return {"gain": Parameter((d_model,), ONES)}

    def __call__(self, x_BLD, params):
        size = (jnp.abs(x_BLD) ** self.power).mean(-1, keepdims=True) ** (1 / self.power)
        return x_BLD / (size + 1e-6) * params["gain"]


@dataclass(frozen=True)
class Recency(Position):
    """A position bias that the package does not know: keys far away are a little less interesting."""

    strength: float = 0.1

    def bias(self, q_BLHK, causal, params):
        return lambda queries, keys: (
            -self.strength
            * jnp.log1p(
                jnp.abs(queries.positions[:, None, :, None] - keys.positions[:, None, None, :]).astype(jnp.float32)
            )
        )


DIFFERENCE = {"layernorm": 1.0, "rmsnorm": -1.0}
ARMS = {
    "layernorm": {},
    "rmsnorm": {"model.norm": RMSNorm()},
    "power": {"model.norm": PowerNorm(power=3.0)},
    "recency": {"model.position": Recency(), "model.norm": PowerNorm()},
}


@dataclass(frozen=True)
class Finished:
    """A study that has run; tests that change its folder work on a copy."""

    study: Study
    corpus: Corpus
    folder: Path
    report: Report
    said: list[str]

    def copied(self, to: Path) -> Path:
        return shutil.copytree(self.folder, to)


def finished(folder: Path, arms, **more) -> Finished:
    base, said = tiny(folder), []
    study, corpus = Study("norms", base, arms, **more), load_corpus(base.data)
    return Finished(study, corpus, folder / "study", study.run(folder / "study", data=corpus, say=said.append), said)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    return finished(tmp_path_factory.mktemp("tuned"), ARMS, seeds=4, learning_rates=(3e-3, 1e-2))


@pytest.fixture(scope="module")
def two_arms(tmp_path_factory):
    arms, question = {"a": {}, "b": {"model.norm": RMSNorm()}}, "Is RMSNorm as good?"
    return finished(tmp_path_factory.mktemp("two"), arms, seeds=2, noise_floor=False, question=question)


def test_variants_of_a_script_stand_beside_shipped_ones(tuned):
    """Trained, saved, resumed and reported by their text form, without touching the package."""
    assert "use at least 6 seeds: 4 detect no ordinary difference" in tuned.said[0]
    assert [arm.name for arm in tuned.report.arms] == list(ARMS)
    assert all(arm.failed_anywhere == (0, 8) for arm in tuned.report.arms)
    stored = json.loads((tuned.folder / "report.json").read_text())
    assert stored["record"]["config"]["arms"]["power"]["model.norm"] == {"variant": "powernorm", "power": 3.0}
    assert "powernorm(power=3.0)" in (tuned.folder / "report.md").read_text()
    cells = [json.loads(p.read_text())["run"] for p in (tuned.folder / "cells").glob("*/config.json")]
    norms = {str(RunConfig.from_json(run).model.norm) for run in cells}
    assert norms == {"layernorm", "rmsnorm", "powernorm(power=3.0)", "powernorm"}


def test_finished_runs_are_read_and_missing_ones_computed(tuned, tmp_path):
    folder = tuned.copied(tmp_path / "copy")
    times = {p: p.stat().st_mtime_ns for p in folder.glob("runs/*.json")}
    assert len(times) == 4 * 8 + 8  # and the baseline under other seeds
    removed, damaged = (folder / "runs" / tuned.report.record.arms["rmsnorm"].files[1][i] for i in (2, 3))
    removed.unlink()
    whole = read_sealed(damaged)
    damaged.write_text(damaged.read_text().replace('"loss"', '"lost"'))
    with pytest.warns(UserWarning, match=f"{damaged.name}: is not what was written.*; it is computed again"):
        second = tuned.study.run(folder, data=tuned.corpus)
    assert {p for p in times if p.stat().st_mtime_ns != times[p]} == {removed, damaged}
    assert read_sealed(damaged).keys() == whole.keys()
    for one, other in zip(tuned.report.arms, second.arms, strict=True):
        np.testing.assert_allclose(one.values, other.values, rtol=1e-5)


def test_a_study_that_is_killed_while_runs_are_stored_keeps_their_cell(base, corpus, tmp_path, monkeypatch):
    """What was trained together is not trained again in part."""
    study = Study("s", base, {"a": {}, "b": {"model.mixer.num_heads": 1}}, seeds=4, learning_rates=(1e-3,))
    write, written = ArmRuns.write, []

    def killed(self, run):
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(run)
        write(self, run)

    with monkeypatch.context() as patch:
        patch.setattr(ArmRuns, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            study.run(tmp_path, data=corpus)
    (cell,) = (tmp_path / "cells").iterdir()
    trained = (cell / METRICS).read_bytes()
    study.run(tmp_path, data=corpus)
    assert (cell / "result.json").exists()
    assert len(list((tmp_path / "cells").iterdir())) == 2
    assert (cell / METRICS).read_bytes() == trained


def test_the_folder_of_a_cell_may_be_empty(base, corpus, tmp_path):
    """As where its study was killed before it wrote anything there, and another one has the runs."""
    study = Study("s", base, {"a": {}, "b": {"model.mixer.num_heads": 1}}, seeds=2, learning_rates=(1e-3,))
    study.run(tmp_path / "one", data=corpus, runs=tmp_path / "runs")
    for cell in (tmp_path / "one" / "cells").iterdir():
        (tmp_path / "two" / "cells" / cell.name).mkdir(parents=True)
    study.run(tmp_path / "two", data=corpus, runs=tmp_path / "runs")
    assert not [path for cell in (tmp_path / "two" / "cells").iterdir() for path in cell.iterdir()]


def test_the_baseline_is_run_again_under_seeds_that_no_arm_has(tuned):
    noise, base = tuned.report.record.noise, tuned.report.record.arms["layernorm"]
    assert base.seeds == [0, 1, 2, 3]
    assert noise.seeds == [1_000_000 + seed for seed in base.seeds]
    assert noise.config == base.config
    assert tuned.report.noise.estimates != tuned.report.arms[0].estimates


def test_more_seeds_and_rates_train_only_what_is_new(base, corpus, tmp_path):
    arms = {"layernorm": {}, "rmsnorm": {"model.norm": RMSNorm()}}
    few = Study("norms", base, arms, seeds=2, learning_rates=(3e-3, 1e-2), noise_floor=False)
    few.run(tmp_path, data=corpus)
    times = {p: p.stat().st_mtime_ns for p in tmp_path.glob("runs/*.json")}
    more = dataclasses.replace(few, seeds=3, learning_rates=(1e-3, 3e-3, 1e-2))
    report = more.run(tmp_path, data=corpus)
    assert {p: p.stat().st_mtime_ns for p in times} == times
    assert len(list(tmp_path.glob("runs/*.json"))) == 2 * 9
    made = [json.loads(p.read_text())["replicas"] for p in tmp_path.glob("cells/*/config.json")]
    assert sorted(map(len, made)) == [4, 4, 5, 5]
    assert all(arm.learning_rates == [1e-3, 3e-3, 1e-2] for arm in report.arms)
    other = dataclasses.replace(few, arms={"layernorm": {}, "power": {"model.norm": PowerNorm()}})
    said = []
    other.run(tmp_path / "other", data=corpus, runs=tmp_path / "runs", say=said.append)
    assert "  layernorm: there already" in said  # a run belongs to no study


def test_the_report_holds_what_a_reader_needs(tuned):
    report = json.loads((tuned.folder / "report.json").read_text())
    assert {"record", "arms", "noise", "contrasts", "correlation", "warnings", "summary"} == report.keys()
    rms = report["arms"][1]
    assert rms["estimates"] == rms["values"][[3e-3, 1e-2].index(rms["learning_rate"])]
    assert rms["deviation"] == pytest.approx(np.std(rms["estimates"], ddof=1))
    assert rms["worst"] == max(rms["estimates"])
    assert report["contrasts"]["rmsnorm"]["n"] == rms["seeds"] == 4
    assert rms["signals"].keys() == {"stream", "positions", "branch", "logits"}  # held-out rows are all the same
    for picture in ("forest", "seeds", "curves", "learning_rates"):
        assert (tuned.folder / f"{picture}.png").read_bytes().startswith(b"\x89PNG")
    assert read_study(tuned.folder).summary() == report["summary"]


def test_a_run_tells_the_losses_of_the_whole_split(two_arms, tmp_path):
    """The sums by batch of the stored run give the loss, accuracy and exact match of the trained one."""
    arm, config = two_arms.report.arms[0], two_arms.study.configs(two_arms.corpus)["a"]
    outcome = train(config, grid((0, 1)), two_arms.corpus, tmp_path / "alone")
    np.testing.assert_allclose(arm.estimates, outcome.validation_loss, rtol=1e-5)
    assert arm.metrics["accuracy"].value == pytest.approx(outcome.accuracy.mean())
    assert arm.metrics["exact_match"].value == pytest.approx(outcome.exact_match.mean())


def test_seeds_are_added_while_a_verdict_is_open(base, corpus, tmp_path):
    """Twice as many each time, for the arms that are asked about and the baseline; each look at a share of α."""
    arms = {"layernorm": {}, "rmsnorm": {"model.norm": RMSNorm()}, "stuck": {"optimizer.learning_rate": 1e-9}}
    study = Study("norms", base, arms, seeds=3, max_seeds=12, learning_rates=(1e-2,), margin=1e-9)
    assert study.looks == (3, 6, 12)
    said = []
    report = study.run(tmp_path, data=corpus, say=said.append)
    seeds = {arm.name: arm.seeds for arm in report.arms}
    assert seeds["layernorm"] == seeds["rmsnorm"] == 12
    assert seeds["stuck"] < 12
    assert report.arms[2].verdict == "worse"
    assert report.arms[2].compared.n == seeds["stuck"]
    assert report.noise is not None
    assert report.noise.seeds == 3
    assert any(line.startswith("open after 3 seeds: layernorm, rmsnorm") for line in said)
    assert "over 3 looks at the results" in report.summary()[0]
    none = dataclasses.replace(study, minutes=0.0).run(tmp_path / "quick", data=corpus, runs=tmp_path / "runs")
    assert {arm.seeds for arm in none.arms} == {3}


def test_a_folder_is_of_one_study(two_arms, tmp_path):
    folder, other = two_arms.copied(tmp_path / "copy"), dataclasses.replace(two_arms.study, name="other")
    with pytest.raises(ConfigError, match=rf"^study other: .* holds the study {two_arms.study.name}; give it a folder"):
        other.run(folder, data=two_arms.corpus)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"^study .*: .* holds a run or a model; give it a folder of its own$"):
        two_arms.study.run(tmp_path / "run", data=two_arms.corpus)
    (folder / "study.json").write_text("{")
    two_arms.study.run(folder, data=two_arms.corpus)
    assert read_record(folder).name == two_arms.study.name


def test_the_plan_is_written_first_and_changes_are_told(two_arms, tmp_path):
    folder, study = two_arms.copied(tmp_path / "copy"), two_arms.study
    plan = read_sealed(folder / "plan.json")["plan"]
    assert (plan["margin"], plan["looks"]) == (0.01, [2])
    assert two_arms.report.record.plan["sha256"] == fingerprint(plan)
    assert two_arms.report.summary()[0] == "Question: Is RMSNorm as good?"
    assert two_arms.report.summary()[2].endswith(": kept.")
    changed = dataclasses.replace(study, margin=0.5).run(folder, data=two_arms.corpus)
    assert changed.summary()[2].endswith("changed in margin (after 4 runs).")
    late = study.run(tmp_path / "late", data=two_arms.corpus, runs=folder / "runs")
    assert "written when 4 of its runs were there: kept" in late.summary()[2]


def test_all_that_decides_a_verdict_is_in_the_plan(base, corpus):
    """No two studies that differ in it have the same plan."""
    arms, rates = {"a": {}, "b": {"model.norm": RMSNorm()}}, (1e-3, 1e-2)
    study = Study("norms", base, arms, seeds=2, max_seeds=8, noise_floor=False, learning_rates=rates)
    changes = [
        {},
        {"question": "Is it as good?"},
        {"metric": "accuracy"},
        {"tuned_by": "accuracy"},
        {"margin": 0.02},
        {"fails_above": 9.0},
        {"baseline": "b"},
        {"arms": {"a": {}, "b": {"model.norm": PowerNorm()}}},
        {"learning_rates": (1e-3, 3e-3)},
        {"contrasts": {"x": {"a": 0.5, "b": -0.5}}},
        {"first_seed": 5},
        {"seeds": 4},
        {"max_seeds": 4},
        {"minutes": 1.0},
        {"probes": (LongerText(2),)},
    ]
    studies = [dataclasses.replace(study, **change) for change in changes]
    plans = [one.plan(prepared(one, corpus)) for one in studies]
    assert len(set(map(fingerprint, plans))) == len(changes)
    assert plans[0]["alpha"] == 0.05


def test_data_of_an_arm_are_loaded_once_and_are_its_own(base, corpus, monkeypatch):
    loaded = []
    monkeypatch.setattr(
        "transformer.study.arms.load_data", lambda config: loaded.append(load_data(config)) or loaded[-1]
    )
    arms = prepared(Study("order", base, {"a": {"data.consecutive": True}, "b": {}}), corpus)
    assert [arms["a"].data, arms["b"].data] == [*loaded, corpus]


def test_the_noise_floor_has_seeds_that_no_look_has(base, corpus):
    """All else is as in the baseline."""
    arms = prepared(Study("norms", base, {"a": {}, "b": {"model.norm": RMSNorm()}}, seeds=3, max_seeds=12), corpus)
    noise, baseline = arms[NOISE], arms["a"]
    assert not set(noise.seeds(12)) & set(baseline.seeds(12))
    assert (noise.config, noise.rates) == (baseline.config, baseline.rates)


def test_the_planned_effect_counts_all_comparisons_and_looks(base):
    study = Study("norms", base, {"a": {}, "b": {}, "c": {}}, seeds=4, max_seeds=8)
    assert study.planned_effect() == detectable_difference(2**0.5, 8, 2, alpha=0.05 / 2)
    assert study.planned_effect_text().startswith(
        f"smallest detectable difference {study.planned_effect():.2f} standard"
    )
    few = dataclasses.replace(study, seeds=3, max_seeds=None)
    assert few.planned_effect_text() == "use at least 6 seeds: 3 detect no ordinary difference"


def test_probes_are_measured_on_trained_parameters(base, corpus, tmp_path):
    """On text longer than in training: no number for learned positions; later read from the cells."""
    arms = {"learned": {}, "alibi": {"model.position": ALiBi()}}
    study = Study("positions", base, arms, seeds=2, probes=(LongerText(2),))
    learned, alibi = study.run(tmp_path, data=corpus).arms
    assert learned.metrics["loss at 2x length"].value is None
    assert 0 < alibi.metrics["loss at 2x length"].value < 2 * np.log(corpus.tokenizer.vocab_size)
    assert "loss at 2x length" in (tmp_path / "report.md").read_text()
    times = {p: p.stat().st_mtime_ns for p in tmp_path.glob("runs/*.json")}
    assert study.run(tmp_path, data=corpus).arms[1].metrics == alibi.metrics
    assert {p: p.stat().st_mtime_ns for p in times} == times
    lines = {p: p.read_text() for p in tmp_path.glob("cells/*/metrics.jsonl")}
    more = dataclasses.replace(study, probes=(LongerText(2), LongerText(3)), metric="loss at 3x length")
    primary = next(iter(more.run(tmp_path, data=corpus).arms[1].metrics))
    assert primary == "loss at 3x length"
    assert {p: p.read_text() for p in lines} == lines  # measured on the parameters that were there


def test_a_probe_measures_again_where_the_parameters_are_gone(base, corpus, tmp_path):
    arms = {"nothing": {"model.position": None}, "alibi": {"model.position": ALiBi()}}
    study = Study("positions", base, arms, seeds=2, noise_floor=False)
    study.run(tmp_path, data=corpus)
    shutil.rmtree(tmp_path / "cells")
    more = dataclasses.replace(study, probes=(LongerText(2),))
    assert more.run(tmp_path, data=corpus).arms[1].metrics["loss at 2x length"].value is not None


def test_an_arm_that_always_diverges_fails_more_often(base, corpus, tmp_path):
    broken = {"optimizer.learning_rate": 1e30, "optimizer.warmup_steps": 0, "optimizer.clip_norm": None}
    study = Study("broken", base, {"good": {}, "bad": broken}, seeds=6, noise_floor=False)
    good, bad = study.run(tmp_path, data=corpus).arms
    assert (good.failed, bad.failed, bad.primary.value) == (0, 6, None)
    assert (good.learning_rate, bad.learning_rate) == (1e-3, 1e30)
    assert bad.verdict == "fails more often"
    assert bad.metrics["exact_match"].value is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arms": {"a": {}}}, "study norms: 1 arm; a comparison needs two"),
        (
            {"arms": leave_one_out({"a": {"steps": 3}, "b": {"seed": 1}})},
            "study norms: arms is a Design; give its parts, **vars(design)",
        ),
        ({"arms": "ab"}, "study norms: arms is a str; give each a name, {'base': {}"),
        ({"arms": [{}, {"model.norm": "rmsnorm"}]}, "study norms: arms is a list; give each a name"),
        ({"arms": {"a": {}, "b": "rmsnorm"}}, "study norms: arm b: Mapping is needed, and 'rmsnorm' is given"),
        ({"baseline": "rmsnrm"}, "no arm 'rmsnrm'; did you mean 'rmsnorm'?"),
        ({"seeds": 1}, "an interval needs two"),
        ({"seeds": range(4)}, "study norms: seeds: range(0, 4) is not int"),
        ({"match": "params"}, "study norms: match: unknown value 'params'; did you mean 'parameters'?"),
        ({"max_seeds": 3}, "max_seeds 3 is less than seeds 4"),
        ({"margin": 0.0}, "study norms: margin 0.0 is not a positive number"),
        ({"margin": float("inf")}, "study norms: margin inf is not a positive number"),
        ({"arms": {"": {}, "b": {}}}, "study norms: an arm has no name"),
        ({"arms": {"a": {}, "a, other seeds": {}}}, "'a, other seeds' is the name of the baseline under other seeds"),
        ({"arms": {"a": {}, NOISE: {}}}, "'baseline, other seeds' is the name of the baseline under other seeds"),
        ({"contrasts": {"layernorm, other seeds": DIFFERENCE}}, "'layernorm, other seeds' is the name of the baseline"),
        ({"contrasts": {3: DIFFERENCE}}, "study norms: the name 3 of a contrast: str is needed, and int is given"),
        ({"match_by": "steps"}, "study norms: match_by steps: nothing is matched; give match too"),
        ({"minutes": 5.0}, "study norms: minutes 5 end nothing: no seeds are added; give max_seeds too"),
        ({"minutes": 5.0, "max_seeds": 4}, "study norms: minutes 5 end nothing"),
        ({"first_seed": -1}, "study norms: first_seed -1: its seeds, up to 1000002, are not in [0, 2³¹)"),
        ({"first_seed": 2**31 - 4}, "study norms: first_seed 2147483644: its seeds, up to 2148483647, are not in"),
        ({"first_seed": 2**31 - 3, "noise_floor": False}, "its seeds, up to 2147483648, are not in [0, 2³¹)"),
        ({"margin": "x"}, "study norms: margin: 'x' is not float"),
        ({"max_seeds": "8"}, "study norms: max_seeds: '8' is not int or none"),
        ({"learning_rates": ("1e-2",)}, "study norms: learning_rates: '1e-2' is not float"),
        ({"probes": (abs,)}, "study norms: probes: <built-in function abs> is not Probe"),
        ({"metric": "los"}, "no metric 'los'; did you mean 'loss'?"),
        ({"tuned_by": "los"}, "no metric 'los'; did you mean 'loss'?"),
        ({"contrasts": {"x": {"layernorm": 1.0, "rms": -1.0}}}, "contrast x: no arm 'rms'"),
        ({"contrasts": {"x": {"layernorm": 1.0}}}, "its weights add up to 1, not 0"),
    ],
)
def test_impossible_studies_are_refused(base, changes, message):
    """Before anything is computed, by the name of what is wrong."""
    arguments = {"arms": {"layernorm": {}, "rmsnorm": {}}, "seeds": 4, "learning_rates": (1e-3, 1e-2), **changes}
    with pytest.raises(ConfigError) as error:
        Study("norms", base, **arguments)
    assert message in str(error.value)


def test_an_arm_may_change_what_it_is_trained_on_and_not_what_it_is_judged_by(base, corpus, tmp_path):
    images = np.random.default_rng(0).integers(0, 255, (20, 4, 4), np.uint8)
    halves = {"train_images": images[:10], "test_images": images[10:]}
    np.savez(tmp_path / "x.npz", **halves, train_labels=np.arange(10) % 2, test_labels=np.arange(10) % 2)
    vision = VisionRun(model=VisionConfig(patch_size=2), data=ImageConfig(path=str(tmp_path / "x.npz")), batch_size=5)
    data = load_data(vision.data)
    arms = prepared(Study("moved", vision, {"still": {}, "moved": {"data.shift": 1.0}}, seeds=2), data)
    assert arms["still"].data is data
    still, moved = (arms[name].data.train_batches(arms[name].config, 0)[0]["inputs"] for name in ("still", "moved"))
    assert np.abs(still - moved).max() > 0
    with pytest.raises(ConfigError, match="arm bytes changes the held-out part"):
        prepared(Study("tokens", base, {"characters": {}, "bytes": {"data.tokenizer": "byte"}}, seeds=2), corpus)


def test_exact_answers_compare_questions_that_are_written_in_other_ways():
    """Sums from either end: of their losses nothing can be said, of the share that is right all."""
    data = AlgorithmicConfig(task=Addition(digits=1), examples=40, validation_examples=20)
    base = RunConfig(model=ModelConfig(max_length=8, num_layers=1, d_model=16), data=data)
    arms = {"reversed": {}, "plain": {"data.task": Addition(digits=1, reverse=False)}}
    made = prepared(Study("sums", base, arms, seeds=2, metric="exact_match"), load_data(data))
    assert made["plain"].held_out != made["reversed"].held_out
    with pytest.raises(ConfigError, match="arm plain changes the held-out part"):
        prepared(Study("sums", base, arms, seeds=2), load_data(data))


def test_arms_of_a_question_are_judged_by_the_same_loss(base, corpus):
    """What only changes training may differ; other losses, and losses of other labels, cannot be compared."""

    @dataclass(frozen=True)
    class Halved(NextToken):
        def losses(self, logits_BLV, labels_BL):
            return super().losses(logits_BLV, labels_BL) / 2

    def ask(metric="loss", **objectives):
        arms = {name: {"objective": objective} for name, objective in objectives.items()}
        return prepared(Study("judged", base, {"base": {}, **arms}, seeds=2, metric=metric), corpus)

    ask(smoothed=NextToken(label_smoothing=0.1), chunked=ChunkedNextToken(chunk=3))
    ask("accuracy", halved=Halved())
    line = (
        r"^study judged: arms halved and base are judged by halved\(auxiliary=0.0\) and next_token\(auxiliary=0.0\), "
        r"which are not comparable; metric='accuracy' compares what they get right, or plain\(\) "
        "returns what both are judged by$"
    )
    with pytest.raises(ConfigError, match=line):
        ask(smoothed=NextToken(label_smoothing=0.1), halved=Halved())
    for metric in ("loss", "accuracy"):
        with pytest.raises(ConfigError, match="which are not comparable; a probe can ask both the same"):
            ask(metric, prefix=PrefixToken())


def test_all_runs_may_begin_from_a_trained_model(base, corpus, tmp_path):
    """Ways to go on are compared; runs of other beginnings are others."""
    run = train(base.replace(steps=20), grid(1), corpus, tmp_path / "first")
    arms = {"all": {}, "head": {"optimizer.groups": (ParameterGroup("blocks.*", rate=0.0),)}}
    study = Study("on", base.replace({"steps": 2, "optimizer.warmup_steps": 0}), arms, seeds=2, noise_floor=False)
    said, folder = [], tmp_path / "study"
    report = study.run(folder, data=corpus, initial=run.params(), say=said.append)
    before, alone = run.validation_loss[0], study.run(tmp_path / "alone", data=corpus, say=said.append)
    for arm, other in zip(report.arms, alone.arms, strict=True):
        assert abs(arm.primary.value - before) < abs(other.primary.value - before)
    said.clear()
    study.run(folder, data=corpus, initial=run.params(), say=said.append)
    assert [line.strip() for line in said if "there already" in line] == ["all: there already", "head: there already"]
    said.clear()
    other = jax.tree.map(lambda a: 2 * a, run.params())
    study.run(folder, data=corpus, initial=other, say=said.append)
    assert not [line for line in said if "there already" in line]
    with pytest.raises(ConfigError, match=r"^study on: initial is a Outcome, not parameters; those of a run are"):
        study.run(folder, data=corpus, initial=run, say=said.append)


def test_a_confirmation_chooses_nothing_by_its_runs(tuned, tmp_path):
    """Seeds that no look has had, one rate for each arm, one look, and all of the held-out part."""
    again = tuned.study.confirmation(tuned.report)
    best = {arm.name: arm.learning_rate for arm in tuned.report.arms}
    assert {name: again.rates(name) for name in again.arms} == {name: (rate,) for name, rate in best.items()}
    assert (again.name, again.looks, again.first_seed) == ("norms_fresh", (4,), 1000)
    assert again.configs(tuned.corpus).keys() == tuned.study.arms.keys()
    report = dataclasses.replace(again, noise_floor=False).run(tmp_path, data=tuned.corpus, say=str)
    assert report.record.arms["power"].config == tuned.report.record.arms["power"].config
    assert {seed for arm in report.record.arms.values() for seed in arm.seeds} == set(range(1000, 1004))
    assert not report.record.halves


def test_a_confirmation_of_many_seeds_has_others(tuned):
    many = dataclasses.replace(tuned.study, seeds=4, max_seeds=1200, first_seed=7)
    record = dataclasses.replace(tuned.report.record, config=many.to_json())
    assert many.looks[-1] == 1200
    assert many.confirmation(dataclasses.replace(tuned.report, record=record)).first_seed == 1207


def test_a_confirmation_of_pooled_studies_has_others(tuned):
    """Of a study that has the seeds of its confirmation too."""
    arms = {n: dataclasses.replace(arm, seeds=[0, 1, 1000, 1001]) for n, arm in tuned.report.record.arms.items()}
    report = dataclasses.replace(tuned.report, record=dataclasses.replace(tuned.report.record, arms=arms))
    assert tuned.study.confirmation(report).first_seed == 1002


def test_a_confirmation_has_no_seeds_to_add(tuned):
    """A record of before it said so answers it."""
    timed = dataclasses.replace(tuned.study, max_seeds=8, minutes=5.0)
    record = dataclasses.replace(tuned.report.record, config=timed.to_json())
    again = timed.confirmation(dataclasses.replace(tuned.report, record=record))
    assert again.minutes is None
    before = {**again.to_json(), "minutes": 5.0, "match_multiple": 1}
    assert again.asked_in(dataclasses.replace(record, config=before))


@pytest.mark.parametrize("arm", [{"model.nrm": "rmsnorm"}, {"model.norm": "rmsnrm"}])
def test_a_misspelt_choice_is_named_with_its_arm(base, corpus, arm):
    for recipes in (True, False):
        with pytest.raises(ConfigError, match=r"^arm b: .*did you mean '(norm|rmsnorm)'\?"):
            Study("norms", base, {"a": {}, "b": arm}, recipes=recipes).configs(corpus)


def test_a_confirmation_is_of_the_study_that_was_asked(tuned):
    arms = {"layernorm": {}, "rmsnorm": {"model.norm": RMSNorm(eps=1e-3)}}
    other = dataclasses.replace(tuned.study, arms=arms)
    with pytest.raises(ConfigError, match=r"^study norms: the report is on norms, or not on the study as it is$"):
        other.confirmation(tuned.report)
    record = dataclasses.replace(tuned.report.record, failed={"power": "no memory"})
    with pytest.raises(ConfigError, match=r"^study norms: arm power could not be computed$"):
        tuned.study.confirmation(dataclasses.replace(tuned.report, record=record))


def test_an_arm_has_learning_rates_of_its_own(base, corpus):
    arms = {"all": {}, "one": {"optimizer.learning_rate": 1e-2}, "own": {"optimizer.learning_rate": (3e-2, 1e-2)}}
    study = Study("rates", base, arms, seeds=4, learning_rates=(3e-3, 1e-3))
    assert [study.rates(name) for name in arms] == [(1e-3, 3e-3), (1e-2,), (1e-2, 3e-2)]
    assert Study("rates", base, {"a": {}, "b": {}}).rates("a") == (base.optimizer.learning_rate,)
    made = prepared(study, corpus)
    assert [len(made[name].replicas(4)) for name in arms] == [8, 4, 8]
    whole = {"a": {}, "hot": {"optimizer": base.optimizer.replace(learning_rate=0.3)}}
    assert Study("rates", base, whole).rates("hot") == (0.3,)
    assert Study("rates", base, {**whole, "hot": whole["hot"] | {"optimizer.learning_rate": 0.1}}).rates("hot") == (
        0.1,
    )
    with pytest.raises(
        ConfigError, match=r"arm hot: its optimizer has learning rate 0\.3, and the study has learning_"
    ):
        Study("rates", base, whole, learning_rates=(1e-2,))
    with pytest.raises(ConfigError, match=r"arm a: learning rate 0\.01 is given twice"):
        Study("rates", base, {"a": {}, "b": {}}, learning_rates=(1e-2, 1e-2)).rates("a")


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"margin": np.nan}, "margin nan is not a positive number"),
        ({"fails_above": np.nan}, "fails_above nan is negative or not a number"),
        ({"minutes": -1.0}, "minutes -1.0 is negative or not a number"),
        ({"learning_rates": (1e-2, np.nan)}, "learning rate nan is not a number from 0 on"),
        ({"learning_rates": (1e-2, -1.0)}, "learning rate -1.0 is not a number from 0 on"),
        ({"learning_rates": (1e-2, np.inf)}, "learning rate inf is not a number from 0 on"),
        ({"arms": {"a": {}, "b": {"optimizer.learning_rate": ()}}}, r"arm b: optimizer\.learning_rate is empty; .*"),
        (
            {"arms": {"a": {}, "b": {"optimizer.learning_rate": "9"}}},
            r"arm b: optimizer\.learning_rate: '9' is not float",
        ),
        ({"contrasts": {"q": {"a": np.nan, "b": -1.0}}}, "contrast q: its weights add up to nan, not 0"),
        ({"contrasts": {"q": {"a": 0.0, "b": 0.0}}}, "contrast q: no arm has a weight"),
        ({"contrasts": {"q": {}}}, "contrast q: no arm has a weight"),
        ({"contrasts": {"q": {"a": "1", "b": -1}}}, "contrast q: a: '1' is no number"),
        ({"contrasts": {"q": ["a", "b"]}}, "contrast q: Mapping is needed, and list is given"),
        ({"arms": {"a": {}, 3: {}}}, "the name 3 of an arm.*"),
        ({"arms": {"a": {}, "baseline, other seeds": {}}, "noise_floor": True}, ".*take another"),
    ],
)
def test_numbers_that_are_none(base, fields, line):
    with pytest.raises(ConfigError, match=rf"^study n: {line}$"):
        Study("n", base, **{"arms": {"a": {}, "b": {}}} | fields)


def test_rates_of_an_arm_may_be_an_array_and_one_alone_is_in_its_config(base, corpus):
    arms = {"a": {}, "one": {"optimizer.learning_rate": 0.03}, "two": {"optimizer.learning_rate": np.array([0.2, 0.1])}}
    study = Study("rates", base, arms, learning_rates=(1e-2, 2e-2))
    assert Study("n", base, arms, contrasts={"q": {"a": np.float64(1), "one": np.int64(-1)}}).questions == {
        "q": {"a": 1, "one": -1}
    }
    assert (study.rates("one"), study.rates("two")) == ((0.03,), (0.1, 0.2))
    found = {name: config.optimizer.learning_rate for name, config in study.configs(corpus).items()}
    assert found == {"a": base.optimizer.learning_rate, "one": 0.03, "two": base.optimizer.learning_rate}


def test_no_looks_are_refused_before_anything(base, tmp_path):
    with pytest.raises(ConfigError, match=r"^study n: looks: 0 is not a positive number$"):
        Study("n", base, {"a": {}, "b": {}}).run(tmp_path, looks=0)
    with pytest.raises(ConfigError, match=r"^read_study: give the folder of a study$"):
        read_study()


def test_arms_that_are_one_run_or_see_other_batches_say_so(tmp_path):
    base = RunConfig(
        model=ModelConfig(max_length=8, num_layers=1, d_model=16, mixer=Attention(num_heads=2)), steps=2, batch_size=4
    )
    corpus = load_data(base.data)
    remembers = {"model.memory_length": 8, "model.position": T.RoPE()}
    arms = {"plain": {}, "twin": {"model.num_layers": 1}, "memory": remembers}
    rates = {"plain": {}, "faster": {"optimizer.learning_rate": 0.1}}
    report = Study("order", base, arms, seeds=2, noise_floor=False).run(tmp_path, data=corpus)
    assert "twin: its runs are those of plain: the config is the same" in report.warnings()
    other = Study("rates", base, rates, seeds=2, noise_floor=False).run(tmp_path / "rates", data=corpus)
    assert not any("its runs are those of" in line for line in other.warnings())
    rate = f"{base.optimizer.learning_rate:g}"
    said = f"faster: its learning rates are 0.1, those of plain {rate}: the difference may be one of rates"
    assert said in other.warnings()
    assert "memory: it sees its training data in another order than plain, which the difference includes" in (
        report.warnings()
    )
    assert not report.record.halves
    fair = Study("order", base.replace({"data.consecutive": True}), {"plain": {}, "memory": remembers}, seeds=2)
    arms = prepared(fair, load_data(fair.base.data))
    assert arms["plain"].order == arms["memory"].order
    assert arms["plain"].held_out == arms["memory"].held_out


def test_an_arm_is_trained_as_its_paper_trains_it(base, corpus):
    """Its own settings come before the recipe of its choices, in their text form too; the report says what was used."""
    own = {"model.position": T.Sinusoidal(), "model.embedding.initializer": T.Normal(0.5)}
    whole = {"model.position": T.Sinusoidal(), "model.embedding": T.embeddings.Embedding()}
    arms = {"plain": {}, "paper": {"model.position": "sinusoidal"}, "own": own, "whole": whole}
    study = Study("recipes", base, arms, seeds=2)
    paper, mixed, given = (study.configs(corpus)[name].model.embedding for name in ("paper", "own", "whole"))
    assert (paper.scaled, paper.initializer) == (True, T.Normal(base.model.d_model**-0.5))
    assert (mixed.scaled, mixed.initializer) == (True, T.Normal(0.5))
    assert (given.scaled, given.initializer) == (False, T.Normal(0.02))
    made = prepared(study, corpus)
    said = "model.embedding.scaled=True, model.embedding.initializer=normal(std=0.25) (recipe)"
    assert made["paper"].changes == f"model.position=sinusoidal, {said}"
    wider = dataclasses.replace(study, arms={"plain": {}, "paper": {"model.d_model": 64} | arms["paper"]})
    assert wider.configs(corpus)["paper"].model.embedding.initializer == T.Normal(64**-0.5)
    swap = dataclasses.replace(study, recipes=False)
    assert not swap.configs(corpus)["paper"].model.embedding.scaled
    assert prepared(swap, corpus)["paper"].changes == "model.position=sinusoidal"


@dataclass(frozen=True)
class Particular(T.Activation):
    """It comes with embeddings of its own size."""

    def __call__(self, x):
        return jax.nn.relu(x)

    def recipe(self, d_model):
        return {"model.embedding.initializer": T.Normal(0.7)}


def test_choices_whose_papers_differ_are_refused_unless_the_arm_decides(base):
    both = {"model.feed_forward.activation": Particular(), "model.position": "sinusoidal"}
    decided = {**both, "model.embedding.initializer": "normal(0.1)"}
    study = Study("two", base, {"plain": {}, "both": both, "decided": decided}, seeds=2)
    line = r"^study two: arm both: its choices ask for model\.embedding\.initializer=\S+ and \S+; set it there$"
    with pytest.raises(ConfigError, match=line):
        study.recipe("both")
    assert study.recipe("decided") == {"model.embedding.scaled": True}


def test_arms_with_an_unknown_field_are_refused(base, corpus):
    with pytest.raises(ConfigError, match="no field 'nrom'; did you mean 'norm'"):
        Study("norms", base, {"a": {}, "b": {"model.nrom": RMSNorm()}}, seeds=3).configs(corpus)


def test_what_is_matched_is_one_of_the_budgets(base):
    with pytest.raises(ConfigError, match="match: unknown value 'flop'; did you mean 'flops'"):
        Study("norms", base, {"a": {}, "b": {}}, match="flop")  # pyright: ignore[reportArgumentType] wrong on purpose


@dataclass(frozen=True)
class OfAnotherSize(Probe):
    numbers: int = 3
    label = "size"

    def __call__(self, config, params, data):
        return np.zeros(self.numbers)


def test_a_probe_of_another_size_is_named_and_nothing_is_stored(two_arms, tmp_path):
    folder = two_arms.copied(tmp_path / "copy")
    study = dataclasses.replace(two_arms.study, probes=(OfAnotherSize(),))
    with pytest.raises(StudyError, match=r"probe ofanothersize: it returns an array \(3,\), and there are 2 runs"):
        study.run(folder, data=two_arms.corpus)
    report = dataclasses.replace(study, probes=(OfAnotherSize(2),)).run(folder, data=two_arms.corpus)
    assert [arm.metrics["size"].value for arm in report.arms] == [0.0, 0.0]


@dataclass(frozen=True)
class Told(Probe):
    number: float = 1.0
    label = "told"

    def __call__(self, config, params, data):
        return np.full(2, self.number)


def test_a_probe_that_has_changed_measures_again(two_arms, tmp_path):
    folder = two_arms.copied(tmp_path / "copy")
    for number in (1.0, 2.0):
        study = dataclasses.replace(two_arms.study, probes=(Told(number),))
        assert study.run(folder, data=two_arms.corpus).arms[0].metrics["told"].value == number


def test_two_probes_of_one_label_are_refused(base):
    with pytest.raises(ConfigError, match="two probes are called 'told'"):
        Study("probed", base, {"a": {}, "b": {}}, probes=(Told(), Told(2.0)))
