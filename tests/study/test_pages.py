"""Reports as files: names are text everywhere, one page needs nothing else, and a folder gives the same again."""

import csv
import io
import json
import sys

import numpy as np
import pandas
import pytest

from tests.study import made
from transformer.core.errors import ConfigError
from transformer.core.files import Damaged
from transformer.study import figures
from transformer.study.__main__ import main
from transformer.study.analyse import read_study
from transformer.study.tables import verdicts
from transformer.training.metrics import finite

BASE = 3 + 0.02 * np.random.default_rng(0).normal(size=6)
NAN = np.nan


def test_a_folder_in_place_of_a_picture_is_named(tmp_path):
    report = made.report(tmp_path, {"base": BASE, "arm": BASE + 1})
    (tmp_path / "seeds.png").mkdir()
    with pytest.raises(Damaged, match=r"seeds\.png: is a folder, in place of a file"):
        report.write(tmp_path)


def test_names_of_arms_are_text_in_every_format(tmp_path):
    evil = "a|b <script>alert(1)</script> [x](y) !z 50% _u_ $v$ #w"
    report = made.report(tmp_path, {"base": BASE, evil: BASE + 1})
    report.write(tmp_path)
    html = (tmp_path / "report.html").read_text()
    assert "<script>" not in html
    assert "a|b &lt;script&gt;" in html
    markdown = (tmp_path / "report.md").read_text()
    row = next(line for line in markdown.splitlines() if line.startswith(r"| a\|b"))
    assert row.count("|") - row.count(r"\|") == len(verdicts(report)[1]) + 1
    assert r"\<script>" in row
    assert r"\[x\](y) \!z" in row
    tex = (tmp_path / "report.tex").read_text()
    assert r"50\% \_u\_ \$v\$ \#w" in tex
    rows = list(csv.DictReader(io.StringIO((tmp_path / "report.csv").read_text())))
    assert {row["arm"] for row in rows} == {"base", evil}
    assert [float(row["loss"]) for row in rows[:6]] == pytest.approx(BASE)
    report.show()


def test_a_report_says_where_its_runs_are(tmp_path):
    """Of each arm, the folders below cells, each once."""
    report = made.report(tmp_path, {"base": BASE, "arm": BASE + 1})
    assert [arm.cells for arm in report.arms] == [["cell"], ["cell"]]
    assert "- base: name=base (`cells/cell`)\n" in report.markdown()
    assert "<td>name=base</td><td>cell</td>" in report.html()


def test_a_terminal_says_what_the_arms_are(tmp_path, capsys):
    made.report(tmp_path, {"base": BASE, "arm": BASE + 1}).show()
    assert "\narm: name=arm\n" in capsys.readouterr().out


def test_what_a_notebook_shows_is_the_table_of_verdicts(tmp_path):
    """And a line in a console, not the config of the study."""
    report = made.report(tmp_path, {"base": BASE, "<arm>": BASE + 1}, config={"long": "x" * 9999})
    assert repr(report) == "Report('made': <arm> worse; show() prints it)"
    table = report._repr_html_()
    assert table.startswith("<table><caption>made</caption><tr><th>arm</th>")
    assert "<td>&lt;arm&gt;</td>" in table
    assert table.count("<tr>") == 3


def test_a_correlation_that_there_is_not_is_not_told(tmp_path):
    few = made.report(tmp_path / "few", {"base": BASE[:2], "arm": BASE[:2] + 1})
    assert "ρ" not in " ".join(few.summary())
    assert "Correlation over seeds ρ = 1.00." in made.report(tmp_path, {"base": BASE, "arm": BASE + 1}).summary()[0]


def test_a_page_needs_nothing_else(tmp_path):
    html = made.report(tmp_path, {"base": BASE, "arm": BASE + 1}).html()
    assert html.count("<svg") == 4
    for word in ('src="http', 'href="http', "<link", "<script", "url(http"):
        assert word not in html.replace('xlink:href="#', "")


def test_a_report_is_the_same_from_the_folder(tmp_path):
    arms = {"base": np.stack([BASE, BASE + 0.1]), "arm": np.stack([BASE * NAN, BASE + 0.1])}
    record = made.record(tmp_path, arms, noise=np.stack([BASE, BASE + 0.1]), reference=("n-gram", 2.0))
    first = made.analyse(tmp_path, record)
    record.write(tmp_path)
    assert json.dumps(read_study(tmp_path).to_json()) == json.dumps(first.to_json())
    assert all(finite(x) == x for x in first.arms[0].estimates)
    assert "NaN" not in json.dumps(first.to_json())


def test_rows_for_other_tools(tmp_path, monkeypatch):
    report = made.report(tmp_path, {"base": np.stack([BASE, BASE + 1]), "arm": np.stack([BASE, BASE + 1])})
    rows = report.rows()
    assert len(rows) == 24
    first = {"arm": "base", "learning_rate": 1e-3, "seed": 0, "loss": pytest.approx(BASE[0]), "chosen": True}
    assert rows[0] == first | {"accuracy": 0.5, "exact_match": 0.5}
    assert isinstance(report.frame(), pandas.DataFrame)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match=r"^frame: needs the library pandas: pip install pandas$"):
        report.frame()


def test_the_command_prints_a_report_again_and_joins_several(tmp_path, monkeypatch, capsys):
    arms = {"base": BASE, "arm": BASE + 0.1}
    for number, name in enumerate(("monday", "tuesday")):
        made.record(tmp_path / name, arms, first_seed=6 * number).write(tmp_path / name)
    monkeypatch.setattr("sys.argv", ["study", str(tmp_path / "monday")])
    main()
    assert "worse" in capsys.readouterr().out
    assert (tmp_path / "monday" / "report.html").exists()
    monkeypatch.setattr(
        "sys.argv", ["study", *(str(tmp_path / n) for n in ("monday", "tuesday")), "--out", str(tmp_path / "both")]
    )
    main()
    assert json.loads((tmp_path / "both" / "report.json").read_text())["contrasts"]["arm"]["n"] == 12
    assert not (tmp_path / "tuesday" / "report.html").exists()
    monkeypatch.setattr("sys.argv", ["study", str(tmp_path)])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "holds no study.json" in capsys.readouterr().err


def test_pictures_show_names_as_they_are_and_arms_that_failed(tmp_path):
    """$ begins no formula, _ hides no line, long names leave room for the axes, and equal runs have no bar."""
    long = "model.norm=rmsnorm + model.position=rope + model.feed_forward.activation=glu(gate=gelu)"
    arms = {"base": np.full(6, 2.2), "_x^$": BASE, "all failed": np.full(6, NAN), long: BASE + 1}
    report = made.report(tmp_path, arms)
    report.write(tmp_path)
    drawn = figures.of_study(report)
    assert [label.get_text() for label in drawn["forest"].axes[0].get_yticklabels()][1].startswith("all failed: fails")
    for name in ("curves", "learning_rates"):
        legend = drawn[name].axes[0].get_legend() or drawn[name].legends[0]
        assert " _x^\\$" in [text.get_text() for text in legend.get_texts()]
    for figure in drawn.values():
        figure.canvas.draw()
        width = figure.axes[0].get_window_extent().width / figure.dpi
        assert width > 2  # inches


def test_a_log_has_whole_numbers_whatever_arms_are_called(tmp_path, capsys):
    names = [
        "model.feed_forward.activation=glu model.feed_forward.d_ff=171",
        "model.norm=rmsnorm model.mixer.num_heads=8",
    ]
    report = made.report(tmp_path, {"base": BASE, names[0]: BASE + 1, names[1]: BASE + 2})
    report.show()
    shown = capsys.readouterr().out
    assert "…" not in shown
    for row in verdicts(report)[2]:
        assert all(cell in shown for cell in row[1:])


def test_where_failures_decide_their_p_is_shown(tmp_path):
    report = made.report(tmp_path, {"base": np.stack([BASE, BASE + 0.1]), "bad": np.full((2, 6), NAN)})
    (row,) = (row for row in verdicts(report)[2] if row[0] == "bad")
    assert row[4] == "fails more often"
    assert float(row[3]) == pytest.approx(2 * report.contrasts["bad"].p_failures, rel=0.05)
    (arm,) = (arm for arm in report.arms if arm.name == "bad")
    assert arm.metrics["sensitivity"].value is None
