"""Archives: a study in a small file, read again, and continued from it."""

import dataclasses
import fcntl
import re

import numpy as np
import pytest

from tests.study import made
from transformer.core.errors import ConfigError
from transformer.core.files import Damaged, read_compressed, write_compressed, write_sealed
from transformer.core.folders import LOCK
from transformer.study import archive as archive_module
from transformer.study.analyse import read_study
from transformer.study.archive import RUNS, SUFFIX, Archives, pack, unpack
from transformer.study.plan import PLAN
from transformer.study.record import STUDY, read_record
from transformer.study.runs import read_run
from transformer.training.metrics import METRICS

LOSSES = {"base": np.linspace(2.0, 2.1, 6), "arm": np.linspace(1.9, 2.1, 6)}


@pytest.fixture
def workdir(tmp_path):
    folder = tmp_path / "study"
    made.record(folder, LOSSES, noise=np.linspace(2.0, 2.2, 6)).write(folder)
    write_sealed(folder / PLAN, {})
    (folder / "runs" / "of_another.json").write_text("{}")
    return folder


@pytest.fixture
def archive(workdir, tmp_path):
    path = tmp_path / "kept" / f"study{SUFFIX}"
    pack(workdir, path)
    return path


def test_a_report_is_that_of_the_archive(workdir, archive, tmp_path):
    archives = Archives(archive.parent)
    assert archives.names() == ["study"]
    assert said(archives.report("study")) == said(read_study(workdir))
    unpack(archive, tmp_path / "read", tmp_path / "read" / RUNS)
    assert said(read_study(tmp_path / "read")) == said(read_study(workdir))
    assert not (tmp_path / "read" / RUNS / "of_another.json").exists()


def test_the_same_study_is_the_same_files(workdir, archive, tmp_path):
    pack(workdir, tmp_path / "again" / archive.name)
    pack(workdir, tmp_path / "again" / archive.name)
    assert contents(tmp_path / "again") == contents(archive.parent)


def test_training_losses_are_kept_as_a_picture_shows_them(workdir, tmp_path):
    """To three digits at twenty points."""
    record = read_record(workdir)
    path = workdir / record.runs / record.arms["arm"].files[0][0]
    run = dataclasses.replace(read_run(path), curve={"step": [1.0, 2.0], "loss": [3.14159, None]})
    write_sealed(path, dataclasses.asdict(run))
    pack(workdir, tmp_path / f"one{SUFFIX}")
    unpack(tmp_path / f"one{SUFFIX}", tmp_path / "read", tmp_path / "runs")
    found = read_run(tmp_path / "runs" / path.name)
    assert found == dataclasses.replace(run, curve={"step": [1.0, 2.0], "loss": [3.142, None]})
    steps = [float(step) for step in range(1, 51)]
    write_sealed(path, dataclasses.asdict(dataclasses.replace(run, curve={"step": steps, "loss": steps})))
    pack(workdir, tmp_path / "long" / f"one{SUFFIX}")
    unpack(tmp_path / "long" / f"one{SUFFIX}", tmp_path / "read", tmp_path / "longer")
    few = read_run(tmp_path / "longer" / path.name).curve
    assert (len(few["step"]), few["step"][:3], few["step"][-1]) == (20, [3.0, 5.0, 8.0], 50.0)


def test_sums_of_losses_are_kept_to_six_digits_and_counts_as_they_are(workdir, tmp_path):
    record = read_record(workdir)
    path = workdir / record.runs / record.arms["arm"].files[0][0]
    loss: list[float | None] = [1672.6104, 0.00012345678, None, -3.0]
    labels: list[float | None] = [16777216.0, 1.0, 1.0, 1.0]
    sums = {"loss": loss, "labels": labels, "correct": labels, "exact": labels, "sequences": labels}
    run = dataclasses.replace(read_run(path), **sums)
    write_sealed(path, dataclasses.asdict(run))
    pack(workdir, tmp_path / f"one{SUFFIX}")
    unpack(tmp_path / f"one{SUFFIX}", tmp_path / "read", tmp_path / "runs")
    found = read_run(tmp_path / "runs" / path.name)
    assert found == dataclasses.replace(run, loss=[1672.61, 0.000123457, None, -3.0], curve=found.curve)


def test_studies_share_the_runs_of_an_arm(archive, tmp_path):
    """An arm of two studies is one file; what one has of it stays when the other is written, again too."""
    shared = made.record(tmp_path / "other", {"base": LOSSES["base"] + 1, "new": LOSSES["arm"]}, first_seed=50)
    shared.write(tmp_path / "other")
    write_sealed(tmp_path / "other" / PLAN, {})
    pack(tmp_path / "other", archive.with_name(f"other{SUFFIX}"))
    assert {path.name for path in (archive.parent / RUNS).glob(f"*{SUFFIX}")} == {
        f"{config}{SUFFIX}" for config in ("base", "arm", "noise", "new")
    }
    archives = Archives(archive.parent)
    for name in ("study", "other"):
        assert said(archives.report(name)) == said(read_study(tmp_path / name))


def test_while_one_study_is_packed_no_other_is(workdir, tmp_path, monkeypatch):
    """Each would write the file of a shared arm without the runs of the other."""
    written = []

    def write(path, body):
        with (tmp_path / "kept" / RUNS / LOCK).open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        written.append(path)
        write_compressed(path, body)

    monkeypatch.setattr(archive_module, "write_compressed", write)
    pack(workdir, tmp_path / "kept" / f"study{SUFFIX}")
    assert len(written) == 4


def test_what_probes_found_of_a_shared_run_stays(workdir, archive, tmp_path):
    """A study that asks the same run for less, packed later or there before, takes nothing away from it."""
    record = read_record(workdir)
    name = record.arms["arm"].files[0][0]
    path, plain = workdir / record.runs / name, read_run(workdir / record.runs / name)
    probed = dataclasses.replace(plain, probes={"more": 1.5}, probe_hashes={"more": "f" * 64})
    write_sealed(path, dataclasses.asdict(probed))
    pack(workdir, archive)
    write_sealed(path, dataclasses.asdict(plain))
    pack(workdir, archive)
    unpack(archive, tmp_path / "other", tmp_path / "runs")
    assert read_run(tmp_path / "runs" / name).probes == {"more": 1.5}
    unpack(archive, tmp_path / "again", path.parent)
    assert read_run(path) == probed


def test_what_is_there_is_kept(workdir, archive, tmp_path):
    """Plan, runs and record come back; files that are there stay."""
    other, runs = tmp_path / "other", tmp_path / "runs"
    runs.mkdir()
    name = read_study(workdir).record.arms["arm"].files[0][0]
    (runs / name).write_text("mine")
    unpack(archive, other, runs)
    assert (runs / name).read_text() == "mine"
    assert len(list(runs.iterdir())) == 18
    assert {path.name for path in other.iterdir()} == {PLAN, STUDY}
    assert read_record(other).runs == "../runs"
    (runs / name).unlink()
    unpack(archive, other, runs)
    assert read_study(other).contrasts == read_study(workdir).contrasts


def test_runs_that_are_missing_are_named(archive, tmp_path):
    kept = archive.parent / RUNS / f"arm{SUFFIX}"
    body = read_compressed(kept)
    columns = {name: column[1:] for name, column in body["columns"].items()}
    write_compressed(kept, {"names": body["names"][1:], "columns": columns})
    with pytest.raises(Damaged, match=r"arm\.json\.xz: lacks the run arm-0-0\.json of study\.json\.xz$"):
        unpack(archive, tmp_path / "a", tmp_path / "runs")
    with pytest.raises(Damaged, match=r"arm\.json\.xz: lacks the run arm-0-0\.json of study\.json\.xz$"):
        Archives(archive.parent).report("study")
    kept.unlink()
    with pytest.raises(Damaged, match=r"arm\.json\.xz: is missing$"):
        unpack(archive, tmp_path / "b", tmp_path / "runs")


@pytest.mark.parametrize("name", ["../arm", "/arm", ".", ""])
@pytest.mark.parametrize("where", ["config", "files"])
def test_nothing_is_written_elsewhere(archive, tmp_path, name, where):
    body = read_compressed(archive)
    arm = body["record"]["arms"]["arm"]
    arm[where] = name if where == "config" else [[f"{name}.json", *arm["files"][0][1:]]]
    write_compressed(archive, body)
    with pytest.raises(Damaged, match=rf"^archive: '{re.escape(name)}\.json' is not the name of a file of runs$"):
        unpack(archive, tmp_path / "a", tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def said(report):
    """All of it but the place of the runs."""
    return dataclasses.replace(report, record=dataclasses.replace(report.record, runs="")).to_json()


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_without_a_study_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"holds no study\.json: no study has been run there"):
        pack(tmp_path, tmp_path / f"study{SUFFIX}")
    (tmp_path / METRICS).touch()
    with pytest.raises(ConfigError, match=r"holds no study\.json: it is of a run, which `transformer info` shows"):
        pack(tmp_path, tmp_path / f"study{SUFFIX}")
