"""The evidence: every verdict that is printed is that of the numbers in the repository."""

import dataclasses
import re
import shutil
import statistics

import pytest

from experiments import atlas, exam
from experiments.answers import answers, effects
from experiments.atlas import DOCS, EVIDENCE, claims
from experiments.evidence_bases import gains
from experiments.evidence_doubts import (
    holm,
    of_budgets,
    of_few_seeds,
    of_fresh_seeds,
    of_order,
    of_plans,
    of_ranks,
    of_short_training,
    told_alone,
)
from experiments.evidence_pages import CHECKSUMS, checksums, overview, page
from experiments.evidence_sizes import LOSS, SPEED, section, sizes
from transformer.core.errors import ConfigError
from transformer.data.dataset import load_data
from transformer.data.order import ORDER
from transformer.data.pairs import Pairs
from transformer.study.archive import RUNS, SUFFIX
from transformer.study.study_queue import StudyQueue

CLAIMS = claims()
DATA = {}


@pytest.fixture(scope="module")
def found():
    return answers(CLAIMS, EVIDENCE)


def with_fresh(found):
    return [*found, *(each.fresh for each in found if each.fresh)]


def test_the_pages_say_what_the_archives_say(found):
    """After a change of runs or of claims, `python -m experiments.atlas --minutes 0` writes them again."""
    assert (DOCS / "evidence.md").read_text() == overview(found, CLAIMS)
    for each in found:
        assert (DOCS / "evidence" / f"{each.claim.name}.md").read_text() == page(each)


def test_the_archives_are_those_of_the_checksums():
    assert (EVIDENCE / CHECKSUMS).read_text() == checksums(EVIDENCE)


def test_no_runs_are_kept_without_a_study(found):
    """After a change of claims, the files of runs that are named here can be removed."""
    asked = {arm.config[:20] for each in with_fresh(found) for arm in each.report.record.arms.values()}
    assert {path.name.removesuffix(SUFFIX) for path in (EVIDENCE / RUNS).glob(f"*{SUFFIX}")} <= asked


def test_the_archives_are_of_the_studies_as_they_are(found):
    """No archive goes unread: those of fresh seeds have the rates that are best now."""
    kept = {path.name.removesuffix(SUFFIX) for path in EVIDENCE.glob(f"*{SUFFIX}")}
    assert {each.claim.name for each in with_fresh(found)} == kept


def test_an_archive_of_another_base_is_no_answer():
    claim = CLAIMS["rotary"]
    longer = dataclasses.replace(claim.study, base=claim.study.base.replace(steps=claim.study.base.steps + 1))
    assert answers({"rotary": dataclasses.replace(claim, study=longer)}, EVIDENCE) == []


@pytest.mark.parametrize("name", CLAIMS)
def test_every_claim_can_be_asked(name):
    """Its arms are possible."""
    base = CLAIMS[name].study.base.data
    data = DATA.setdefault(base, load_data(base))
    assert set(CLAIMS[name].study.configs(data)) == set(CLAIMS[name].study.arms)
    assert CLAIMS[name].expected


def test_a_claim_of_longer_training_is_the_same_claim():
    """All that is asked, of a base that differs in its steps and those of its warm-up."""
    short, long = CLAIMS["gelu"], CLAIMS["gelu_2000"]
    assert (long.text, long.expected) == ("GELU is better than ReLU, after 2,000 steps.", short.expected)
    assert long.study.base == short.study.base.replace({"steps": 2000, "optimizer.warmup_steps": 200})
    assert (long.study.arms, long.study.contrasts) == (short.study.arms, short.study.contrasts)
    assert (long.instead, short.instead) == ("gelu", "")


def test_a_claim_that_was_asked_again_is_counted_once(found):
    """By its later verdict, or that of fresh seeds; what is doubtful is counted of all."""
    gelu = [each for each in found if each.claim.name in ("gelu", "gelu_2000")]
    text = overview(gelu, {})
    (counted,) = re.findall(r" 1 effects, 2 questions about them: \*\*(.*?)\*\*\. 1 of the effects were asked", text)
    assert sorted(counted.split(", ")) == sorted(f"1 {finding}" for finding in gelu[1].fresh.findings.values())
    without = [dataclasses.replace(each, fresh=None) for each in gelu]
    assert [effect.counted for effect in effects(without)] == [without[1]]
    ends = [
        each
        for each in gelu
        for arm in each.report.arms
        if arm.learning_rate in (arm.learning_rates[0], arm.learning_rates[-1])
    ]
    assert f"In {len({each.claim.name for each in ends})} of 2 studies some arm takes the lowest or highest" in text


def test_an_unknown_name_is_refused():
    with pytest.raises(ConfigError, match=r"^only: no effect 'swigl'; did you mean 'swiglu'\?$"):
        claims(("swigl",))


@pytest.mark.parametrize("command", [atlas, exam])
def test_what_is_installed_is_left_alone(command, tmp_path, monkeypatch, capsys):
    """Where there is no checkout, pages and archives are in the folder of the studies, and said to be."""
    installed, workdir = tmp_path / "site-packages", tmp_path / "work"
    evidence = installed / "experiments" / "evidence"
    (evidence / "exam").mkdir(parents=True)
    for name in (f"swiglu{SUFFIX}", f"exam/addition{SUFFIX}"):
        (evidence / name).write_bytes((EVIDENCE / name).read_bytes())
    for name in (RUNS, f"exam/{RUNS}"):
        shutil.copytree(EVIDENCE / name, evidence / name)
    before = {path: path.is_file() and path.read_bytes() for path in installed.rglob("*")}
    monkeypatch.setattr(atlas, "EVIDENCE", evidence)
    monkeypatch.setattr(atlas, "DOCS", installed / "docs")
    monkeypatch.setattr(StudyQueue, "run", lambda self, minutes: None)
    monkeypatch.setattr("sys.argv", ["it", "--workdir", str(workdir)])
    for _ in range(2):
        command.main()
    assert {path: path.is_file() and path.read_bytes() for path in installed.rglob("*")} == before
    assert (workdir / "docs" / ("evidence.md" if command is atlas else "exam.md")).exists()
    assert (workdir / "evidence" / "exam" / f"addition{SUFFIX}").exists()
    assert f"this is not a checkout: pages are written to {workdir / 'docs'}, " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (atlas, ["--only", "swiglu", "--afresh"]),
        (exam, ["--models", "softmax", "gated deltanet", "--skills", "recall"]),
    ],
)
def test_a_study_that_could_not_be_computed_ends_it_with_1(command, words, tmp_path, monkeypatch):
    def fail(queue, minutes=None):
        queue.failed["study"] = "why"

    monkeypatch.setattr(StudyQueue, "run", fail)
    monkeypatch.setattr("sys.argv", ["command", *words, "--workdir", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 1


def test_what_lasts_is_counted(found):
    """Of the questions that are told early those that are told later, and of all what is left."""
    some = [each for each in found if each.claim.name in ("muon", "muon_2000", "gelu", "gelu_2000")]
    (text,) = of_short_training(some)
    assert text.startswith(
        "**Short training.** Of 4 differences that 500 steps told in effects that were asked again, 3 are told after "
        "2,000 with"
    )
    early, later = ([c.difference for each in some[i::2] for c in each.report.contrasts.values()] for i in (0, 1))
    left = statistics.median(after / before for before, after in zip(early, later, strict=True))
    assert (
        f"with the same sign and 0 with the other one; in the median of all, {left:.2f} of the difference is left"
        in text
    )
    assert of_short_training(some[2:3]) == []


def test_the_answers_that_remain_if_all_are_corrected_together():
    assert [holm(p) for p in ([0.012, 0.016, 0.9], [0.04, 0.03], [0.02, 0.04], [0.5], [])] == [2, 0, 2, 0, 0]


def test_what_eight_seeds_tell_of_differences_that_are_not_there(found):
    """Of the plain base after 500 steps more often than the level allows, because of its bad runs."""
    some = [each for each in found if each.claim.name in ("beta2", "grouped_queries")]
    (text,) = of_few_seeds(some)
    assert "4 questions have sixteen pairs" in text
    times = [float(number) for number in re.findall(r"([\d.]+) times", text)]
    assert times[1] > 10 > 2 > times[2]
    assert of_few_seeds([each for each in found if each.claim.name == "gelu"]) == []


def test_signs_that_ranks_do_not_tell_are_named(found):
    """Here of DeepNorm by the seeds that chose its rate; of fresh ones ranks tell it too."""
    some = {each.claim.name: each for each in found if each.claim.name in ("deep_norm", "canon", "canon_2000")}
    some["deep_norm"] = dataclasses.replace(some["deep_norm"], fresh=None)
    (text,) = of_ranks(list(some.values()))
    assert text.startswith("**Bad runs.** Of the 6 signs that means tell")
    assert "5 too, 0 the other way round, and 1 not (`deep_norm`, deepnorm)" in text


def test_what_fresh_seeds_find_is_counted(found):
    """Of the answers that are counted: verdicts that are the same, signs, and what is left of the differences."""
    some = [each for each in found if each.claim.name in ("canon", "canon_2000", "gelu")]
    (canon,) = [each for each in some if each.fresh]
    (text,) = of_fresh_seeds(some)
    before, now = canon.findings, canon.fresh.findings
    same, still_open = sum(before[q] == now[q] for q in before), list(now.values()).count("unresolved")
    right = list(before.values()).count("reproduced")
    kept = sum(before[q] == now[q] == "reproduced" for q in before)
    said = (
        f"{same} came out the same ({kept} of {right} of those that were *reproduced*, 0 of 1 of those that were *opp"
    )
    assert f"Of 4 verdicts {said}" in text
    assert f"), {still_open} open and {4 - same - still_open} otherwise." in text
    assert "1 are differences to one baseline, the plain base, and 1 to another" in text
    told = (
        f"Of the 4 questions whose verdict was another than *unresolved* before, {same} have the same one with these. "
    )
    assert told in overview(some, {})
    assert "Of the 4 questions" not in overview(some[:1], {})
    assert "Of the 1 plans of fresh seeds" in of_plans(some)[1]
    first, fresh = canon.report.contrasts, canon.fresh.report.contrasts
    left = statistics.median(fresh[q].difference / first[q].difference for q in first)
    assert f"Of 4 differences whose sign was told 4 have the same sign, and {left:.2f} of their size" in text
    assert of_fresh_seeds(some[:1]) == []
    turned = dataclasses.replace(canon, fresh=dataclasses.replace(canon.fresh, report=opposite(canon.fresh.report)))
    (text,) = of_fresh_seeds([*some[:-1], turned])
    assert "told 0 have the same sign" in text


def with_order(answer, order):
    record = answer.report.record
    record = dataclasses.replace(record, data={**record.data, "order": order})
    return dataclasses.replace(answer, report=dataclasses.replace(answer.report, record=record))


def test_pairs_have_an_order_of_their_own(found):
    pairs, text = (next(each for each in found if each.claim.name == n) for n in ("scaled_projections", "experts"))
    assert [with_order(pairs, order).older for order in (ORDER, Pairs.order_version)] == [True, False]
    assert [with_order(text, order).older for order in (ORDER, ORDER - 1)] == [False, True]


def test_what_another_order_of_rows_finds_is_counted(found):
    """Of fresh seeds with the order as it is now and first ones with that of before."""
    some = {each.claim.name: each for each in found if each.claim.name in ("experts", "warmup")}
    asked = {name: dataclasses.replace(with_order(each, 1), fresh=None) for name, each in some.items()}
    now, before = (with_order(some[name].fresh, order) for name, order in (("experts", ORDER), ("warmup", 1)))
    first = dataclasses.replace(asked["experts"], fresh=now)
    others = [dataclasses.replace(asked["warmup"], fresh=before), asked["warmup"]]
    (text,) = of_order([first, others[0]])
    assert text.startswith(
        f"**Order and text.** {len(now.findings)} of the questions counted were asked of fresh seeds"
    )
    assert f"the other {len(before.findings)} were asked with the same both times" in text
    settled = {q: word for q, word in first.findings.items() if word != "unresolved"}
    same = sum(now.findings[q] == word for q, word in settled.items())
    assert f"Of {len(settled)} verdicts {same} came out the same, " in text
    assert of_order(others) == of_order([with_order(first, ORDER)]) == []


def test_sizes_are_beside_those_of_the_papers(found):
    """SwiGLU by Shazeer's losses of 1.636 and 1.679; value embeddings by minutes, 4.66 and 4.41."""
    asked = effects(found)
    (plain, _) = [each for each in sizes(asked, LOSS) if each.name == "swiglu_2000"]
    (counted,) = [effect.counted for effect in asked if effect.first.claim.name == "swiglu"]
    losses = {arm.name: arm.metrics["loss"].value for arm in counted.report.arms}
    assert plain.published == pytest.approx(-2.56, abs=0.005)
    assert plain.ours == pytest.approx(100 * (losses["plain, swiglu"] / losses["plain"] - 1))
    assert plain.low < plain.ours < plain.high < 0
    (_, modern) = [each for each in sizes(asked, SPEED) if each.name == "value_embeddings_2000"]
    (counted,) = [effect.counted for effect in asked if effect.first.claim.name == "value_embeddings"]
    better = -counted.report.contrasts["modern"].difference
    assert modern.published == pytest.approx(1.0567, abs=0.0001)
    assert modern.ours == pytest.approx(2 ** (2 * better / gains(asked)["modern"]))
    assert 1 < modern.low < modern.ours < modern.high
    text, table = section(asked)
    row = "| [swiglu_2000](evidence/swiglu_2000.md) | % of the loss | -2.6 |"
    assert f"{row} {plain.ours:+.1f} [{plain.low:+.1f}, {plain.high:+.1f}] | " in table
    assert "with its number within our interval; times as fast for 20 questions, " in text
    assert section([effect for effect in asked if effect.first.claim.name == "canon"]) == []


def test_signs_that_are_told_alone_are_marked(found):
    """Those that Holm's correction of all questions does not leave."""
    answers = {
        (effect.first.claim.name, q): (c.p / len(effect.counted.report.contrasts), c.verdict)
        for effect in effects(found)
        for q, c in effect.counted.report.contrasts.items()
    }
    bound, expected = 0.05, set()
    for rank, (key, (p, verdict)) in enumerate(sorted(answers.items(), key=lambda each: each[1][0])):
        bound = bound if p * (len(answers) - rank) < 0.05 else -1
        if bound < 0 and verdict in ("better", "worse"):
            expected.add(key)
    assert told_alone(effects(found)) == expected
    assert ("gelu", "plain") in expected
    marked = [line for line in overview(found, {}).splitlines() if " † |" in line]
    assert len(marked) == len(expected)


def opposite(report):
    """A report in which all differences have the other sign."""
    found = {q: dataclasses.replace(c, difference=-c.difference) for q, c in report.contrasts.items()}
    return dataclasses.replace(report, contrasts=found)


def test_the_latest_answers_are_asked_of_fresh_seeds():
    """Those first of which something opposite was found, each with one rate for each arm."""
    some = {name: CLAIMS[name] for name in ("canon", "canon_2000", "swiglu", "swiglu_2000")}
    asked = atlas.confirmations(some, EVIDENCE, latest=True)
    assert list(asked) == ["canon_2000_fresh", "swiglu_2000_fresh"]
    study = asked["swiglu_2000_fresh"].study
    assert {len(study.rates(name)) for name in study.arms} == {1}
    assert (study.base, study.contrasts) == (CLAIMS["swiglu_2000"].study.base, CLAIMS["swiglu_2000"].study.contrasts)
    assert list(atlas.confirmations(some, EVIDENCE, latest=False)) == [
        "canon_2000_fresh", "swiglu_fresh", "swiglu_2000_fresh", "canon_fresh"
    ]  # fmt: skip


def test_arms_of_other_sizes_are_named(found):
    """Fewer key-value heads have fewer parameters; canon layers add half a per cent; equal ones are not counted."""
    some = [each for each in found if each.claim.name in ("grouped_queries", "canon", "gelu")]
    assert "in 1 studies (`grouped_queries`" in of_budgets(some)
    assert "`canon`" not in of_budgets(some)
