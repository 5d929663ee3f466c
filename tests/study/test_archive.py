"""Archives: a study in a small file, read again, and continued from it."""

import numpy as np
import pytest

from tests.study import made
from transformer.core.files import write_sealed
from transformer.core.values import ConfigError
from transformer.study.analyse import read_study
from transformer.study.archive import pack, read_archive, unpack
from transformer.study.plan import PLAN
from transformer.study.record import STUDY, read_record
from transformer.training.metrics import METRICS

LOSSES = {"base": np.linspace(2.0, 2.1, 6), "arm": np.linspace(1.9, 2.1, 6)}


@pytest.fixture
def workdir(tmp_path):
    folder = tmp_path / "study"
    made.record(folder, LOSSES, noise=np.linspace(2.0, 2.2, 6)).write(folder)
    write_sealed(folder / PLAN, {})
    (folder / "runs" / "of_another.json").write_text("{}")
    return folder


def test_a_report_is_that_of_the_archive(workdir, tmp_path):
    pack(workdir, tmp_path / "kept" / "study.tar.xz")
    found = read_archive(tmp_path / "kept" / "study.tar.xz", tmp_path / "read")
    assert found.to_json() == read_study(workdir).to_json()
    assert not (tmp_path / "read" / "study" / "runs" / "of_another.json").exists()


def test_the_same_study_is_the_same_file(workdir, tmp_path):
    pack(workdir, tmp_path / "a.tar.xz")
    pack(workdir, tmp_path / "b.tar.xz")
    assert (tmp_path / "a.tar.xz").read_bytes() == (tmp_path / "b.tar.xz").read_bytes()


def test_what_is_there_is_kept(workdir, tmp_path):
    """Plan, runs and record come back; files that are there stay."""
    pack(workdir, tmp_path / "study.tar.xz")
    other, runs = tmp_path / "other", tmp_path / "runs"
    runs.mkdir()
    name = read_study(workdir).record.arms["arm"].files[0][0]
    (runs / name).write_text("mine")
    unpack(tmp_path / "study.tar.xz", other, runs)
    assert (runs / name).read_text() == "mine"
    assert len(list(runs.iterdir())) == 18
    assert {path.name for path in other.iterdir()} == {PLAN, STUDY}
    assert read_record(other).runs == "../runs"
    (runs / name).unlink()
    unpack(tmp_path / "study.tar.xz", other, runs)
    assert read_study(other).contrasts == read_study(workdir).contrasts


def test_a_folder_without_a_study_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"holds no study\.json: no study has been run there"):
        pack(tmp_path, tmp_path / "study.tar.xz")
    (tmp_path / METRICS).touch()
    with pytest.raises(ConfigError, match=r"holds no study\.json: it is of a run, which `transformer info` shows"):
        pack(tmp_path, tmp_path / "study.tar.xz")
