"""A study: cells, selection and estimation, the report, and variants that only a script knows."""

import dataclasses
import json
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.parameters import ONES, Parameter
from transformer.core.values import ConfigError
from transformer.data.dataset import load_data
from transformer.data.pictures import ImageConfig, VisionRun
from transformer.models.images import VisionConfig
from transformer.norms.norm import Norm, RMSNorm
from transformer.positions.position import Position
from transformer.positions.relative import ALiBi
from transformer.runs.config import RunConfig
from transformer.study.estimation import select_learning_rate, sensitivity
from transformer.study.probes import LongerText, Probe
from transformer.study.study import Study, StudyError


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


ARMS = {
    "layernorm": {},
    "rmsnorm": {"model.norm": RMSNorm()},
    "power": {"model.norm": PowerNorm(power=3.0)},
    "recency": {"model.position": Recency(), "model.norm": PowerNorm()},
}


@pytest.fixture
def study(base):
    return Study("norms", base, ARMS, seeds=4, learning_rates=(3e-3, 1e-2))


def test_variants_of_a_script_stand_beside_shipped_ones(study, corpus, tmp_path, capsys):
    """Trained, saved, resumed and reported by their text form, without touching the package."""
    report = study.run(tmp_path / "study", data=corpus)
    assert "smallest detectable difference" in capsys.readouterr().out.splitlines()[0]
    assert [arm.name for arm in report.arms] == list(ARMS)
    assert all(arm.n_ok == 8 and arm.n_diverged == 0 for arm in report.arms)
    stored = json.loads((tmp_path / "study" / "report.json").read_text())
    assert stored["config"]["arms"]["power"]["model.norm"] == {"variant": "powernorm", "power": 3.0}
    assert "powernorm(power=3.0)" in (tmp_path / "study" / "report.md").read_text()
    cells = [json.loads(p.read_text())["run"] for p in (tmp_path / "study" / "cells").glob("*/config.json")]
    norms = {str(RunConfig.from_json(run).model.norm) for run in cells}
    assert norms == {"layernorm", "rmsnorm", "powernorm(power=3.0)", "powernorm"}


def test_finished_cells_are_read_and_missing_ones_computed(study, corpus, tmp_path):
    first = study.run(tmp_path, data=corpus)
    times = {p: p.stat().st_mtime_ns for p in tmp_path.glob("cells/*/metrics.jsonl")}
    assert len(times) == 4
    removed = sorted(times)[0]
    (removed.parent / "result.json").unlink()
    second = study.run(tmp_path, data=corpus)
    assert {p for p in times if p.stat().st_mtime_ns != times[p]} == {removed}
    assert [a.estimates for a in first.arms] == [a.estimates for a in second.arms]


def test_the_report_holds_what_a_reader_needs(study, corpus, tmp_path):
    study.run(tmp_path, data=corpus)
    report = json.loads((tmp_path / "report.json").read_text())
    assert {"correlation", "smallest_detectable_effect", "baseline", "config", "arms"} <= report.keys()
    wanted = (
        "name n_ok n_diverged learning_rate loss loss_interval difference difference_interval p_corrected verdict "
        "parameters flops seconds"
    )
    for arm in report["arms"]:
        assert set(wanted.split()) <= arm.keys()
        assert arm["verdict"] in ("baseline", "better", "worse", "equivalent", "unresolved")
    rms = report["arms"][1]
    assert rms["estimates"] == rms["losses"][[3e-3, 1e-2].index(rms["learning_rate"])][1:]
    assert rms["deviation"] == pytest.approx(np.std(rms["estimates"], ddof=1))
    assert rms["worst"] == max(rms["estimates"])
    pairs = np.array(rms["estimates"]) - np.array(report["arms"][0]["estimates"])
    assert rms["difference"] == pytest.approx(pairs.mean())
    assert len(pairs) == rms["n_pairs"] == 3
    for picture in ("forest", "curves", "learning_rates"):
        assert (tmp_path / f"{picture}.png").read_bytes().startswith(b"\x89PNG")


def test_selection_prefers_learning_rates_that_do_not_diverge():
    nan = np.nan
    assert select_learning_rate(np.array([[3.0, 3.0], [1.0, nan], [2.0, 2.0]])) == 2
    assert select_learning_rate(np.array([[nan, nan], [1.0, nan]])) == 1
    assert select_learning_rate(np.empty((1, 0))) == 0


def test_sensitivity_to_the_learning_rate():
    """The mean over learning rates less the best, a diverged or hopeless run counting as a guess."""
    losses = np.array([[2.0, 2.0], [1.0, 1.0], [np.nan, 9.0]])
    assert sensitivity(losses, guess=3.0) == pytest.approx((2 + 1 + 3) / 3 - 1)
    assert sensitivity(np.full((3, 2), 1.5), guess=3.0) == 0
    assert sensitivity(np.ones((1, 2)), guess=3.0) is None


def test_probes_are_measured_on_trained_parameters(base, corpus, tmp_path):
    """On text longer than in training: no number for learned positions; later read from the cells."""
    arms = {"learned": {}, "alibi": {"model.position": ALiBi()}}
    study = Study("positions", base, arms, seeds=2, probes=(LongerText(2),))
    learned, alibi = study.run(tmp_path, data=corpus).arms
    assert learned.probes == {"loss at 2x length": None}
    assert 0 < alibi.probes["loss at 2x length"] < 2 * np.log(corpus.tokenizer.vocab_size)
    assert "loss at 2x length" in (tmp_path / "report.md").read_text()
    times = {p: p.stat().st_mtime_ns for p in tmp_path.glob("cells/*/result.json")}
    assert study.run(tmp_path, data=corpus).arms[1].probes == alibi.probes
    assert {p: p.stat().st_mtime_ns for p in times} == times
    more = dataclasses.replace(study, probes=(LongerText(2), LongerText(3)))
    assert more.run(tmp_path, data=corpus).arms[1].probes.keys() == {"loss at 2x length", "loss at 3x length"}


def test_an_arm_that_always_diverges_is_counted_and_not_averaged(base, corpus, tmp_path):
    broken = {"optimizer.learning_rate": 1e30, "optimizer.warmup_steps": 0, "optimizer.clip_norm": None}
    study = Study("broken", base, {"good": {}, "bad": broken}, seeds=2)
    good, bad = study.run(tmp_path, data=corpus).arms
    assert (good.n_ok, good.n_diverged, bad.n_ok, bad.n_diverged) == (2, 0, 0, 2)
    assert (bad.loss, bad.exact_match) == (None, None)
    assert (good.learning_rate, bad.learning_rate) == (1e-3, 1e30)
    assert bad.verdict == "unresolved"
    assert "2/2" in (tmp_path / "report.md").read_text()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arms": {"a": {}}}, "a comparison needs two"),
        ({"baseline": "rmsnrm"}, "no arm 'rmsnrm'; did you mean 'rmsnorm'?"),
        ({"seeds": 2}, "leave 1 to estimate with"),
        ({"margin": 0.0}, "not positive"),
    ],
)
def test_impossible_studies_are_refused(base, changes, message):
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
    cells = Study("moved", vision, {"still": {}, "moved": {"data.shift": 1.0}}, seeds=2).cells(tmp_path, data)
    assert cells["still"].data is data
    still, moved = (cell.data.train_batches(cell.config, 0)[0]["inputs"] for cell in cells.values())
    assert np.abs(still - moved).max() > 0
    with pytest.raises(ConfigError, match="arm bytes changes the held-out part"):
        Study("tokens", base, {"characters": {}, "bytes": {"data.tokenizer": "byte"}}, seeds=2).cells(tmp_path, corpus)


def test_an_arm_has_a_learning_rate_of_its_own_or_is_given_some(base, corpus):
    arms = {"slow": {}, "fast": {"optimizer.learning_rate": 1e-2}}
    assert Study("rates", base, arms, seeds=2).configs(corpus)["fast"].optimizer.learning_rate == 1e-2
    with pytest.raises(ConfigError, match=r"arm fast has a learning rate of its own, 0.01"):
        Study("rates", base, arms, seeds=4, learning_rates=(1e-3, 3e-3)).configs(corpus)


def test_arms_with_an_unknown_field_are_refused(base, corpus):
    with pytest.raises(ConfigError, match="no field 'nrom'; did you mean 'norm'"):
        Study("norms", base, {"a": {}, "b": {"model.nrom": RMSNorm()}}, seeds=3).configs(corpus)


@pytest.mark.parametrize(("seeds", "message"), [(0, "a choice of learning rates needs one"), (-1, "needs one")])
def test_learning_rates_are_chosen_on_some_seeds(base, seeds, message):
    arguments = {"seeds": 4, "learning_rates": (1e-3, 1e-2), "selection_seeds": seeds}
    with pytest.raises(ConfigError, match=message):
        Study("norms", base, {"a": {}, "b": {"model.norm": "rmsnorm"}}, **arguments)


def test_a_learning_rate_of_an_arm_is_refused_even_if_it_is_that_of_the_base(base, corpus, tmp_path):
    arms = {"a": {}, "b": {"optimizer.learning_rate": base.optimizer.learning_rate}}
    with pytest.raises(ConfigError, match="arm b has a learning rate of its own"):
        Study("rates", base, arms, seeds=2, learning_rates=(1e-2,)).cells(tmp_path, corpus)


def test_what_is_matched_is_one_of_the_budgets(base):
    with pytest.raises(ConfigError, match="match: 'flop' is not"):
        Study("norms", base, {"a": {}, "b": {}}, match="flop")  # pyright: ignore[reportArgumentType] wrong on purpose


@dataclass(frozen=True)
class OfAnotherSize(Probe):
    numbers: int = 3
    label = "size"

    def __call__(self, config, params, data):
        return np.zeros(self.numbers)


def test_a_probe_of_another_size_is_named_and_nothing_is_stored(base, corpus, tmp_path):
    arms, seeds = {"a": {}, "b": {"model.norm": "rmsnorm"}}, 2
    with pytest.raises(StudyError, match=r"probe ofanothersize: it returns an array \(3,\), and there are 2 runs"):
        Study("probed", base, arms, seeds=seeds, probes=(OfAnotherSize(),)).run(tmp_path, data=corpus)
    report = Study("probed", base, arms, seeds=seeds, probes=(OfAnotherSize(2),)).run(tmp_path, data=corpus)
    assert [arm.probes["size"] for arm in report.arms] == [0.0, 0.0]


@dataclass(frozen=True)
class Told(Probe):
    number: float = 1.0
    label = "told"

    def __call__(self, config, params, data):
        return np.full(2, self.number)


def test_a_probe_that_has_changed_measures_again(base, corpus, tmp_path):
    study = Study("probed", base, {"a": {}, "b": {"model.norm": "rmsnorm"}}, seeds=2, probes=(Told(),))
    assert study.run(tmp_path, data=corpus).arms[0].probes == {"told": 1.0}
    other = dataclasses.replace(study, probes=(Told(2.0),))
    assert other.run(tmp_path, data=corpus).arms[0].probes == {"told": 2.0}


def test_two_probes_of_one_label_are_refused(base):
    with pytest.raises(ConfigError, match="two probes are called 'told'"):
        Study("probed", base, {"a": {}, "b": {}}, probes=(Told(), Told(2.0)))
