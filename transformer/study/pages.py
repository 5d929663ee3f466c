"""A report as files that people send: Markdown, one HTML page, CSV, LaTeX, JSON and pictures."""

import csv
import io
import json
import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import matplotlib
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from transformer.core.files import check_place, write_durably
from transformer.study import figures
from transformer.study.tables import legend, tables, verdicts

if TYPE_CHECKING:
    from transformer.study.report import ArmReport, Report

TEX = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "∞": r"$\infty$",
    "−": "$-$",
    "√": r"$\surd$",
    "µ": r"$\mu$",
    "ρ": r"$\rho$",
}
"""Characters that mean something else in LaTeX, or that its fonts lack."""


def write(report: "Report", workdir: Path) -> None:
    """Write report.json, .md, .html, .csv, .tex, and a .png for each picture."""
    drawn = figures.of_study(report)
    texts = {
        "report.json": json.dumps(report.to_json(), indent=1),
        "report.md": markdown(report),
        "report.html": html(report, drawn),
        "report.csv": rows_csv(report),
        "report.tex": tex(report),
    }
    for name, text in texts.items():
        write_durably(workdir / name, text)
    for name, figure in drawn.items():
        check_place(path := workdir / f"{name}.png")
        figure.savefig(path, dpi=120)
        plt.close(figure)


def markdown(report: "Report") -> str:
    """Tables, arms, warnings and pictures; the pictures are files beside it."""
    parts = [f"# {_md(report.name)}", *map(_md, report.summary())]
    for title, columns, rows in tables(report):
        lines = [list(map(_md, columns)), ["---"] * len(columns), *([_md(cell) for cell in row] for row in rows)]
        parts.append(f"## {_md(title)}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines))
    parts.append("\n".join(f"- {_md(line)}" for line in legend(report)))
    parts.append("\n".join(map(_arm, report.arms)))
    if warnings := report.warnings():
        parts.append("Before you believe it:\n\n" + "\n".join(f"- {_md(line)}" for line in warnings))
    parts.append("\n".join(f"![{name}]({name}.png)" for name in ("forest", "seeds", "curves", "learning_rates")))
    parts.append(f"```json\n{json.dumps(_details(report), indent=1)}\n```")
    return "\n\n".join(parts) + "\n"


def _arm(arm: "ArmReport") -> str:
    """An arm, its changes and the folders of its runs, as an item of a list."""
    cells = ", ".join(f"`cells/{cell}`" for cell in arm.cells)
    return f"- {_md(arm.name)}: {_md(arm.changes or 'the base')} ({cells})"


def table(title: str, columns: list[str], rows: list[list[str]]) -> str:
    """A table alone, as a part of another page."""
    lines = [f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows]
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    return f"<table><caption>{escape(title)}</caption><tr>{head}</tr>{''.join(lines)}</table>"


def html(report: "Report", drawn: dict[str, Figure] | None = None) -> str:
    """One page with everything in it, which needs no other file and no network."""
    pictures = {name: _svg(figure) for name, figure in (drawn or figures.of_study(report)).items()}
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("transformer.study", "templates"), autoescape=True, trim_blocks=True
    )
    details = {name: json.dumps(value, indent=1) for name, value in _details(report).items()}
    colours = {"better": "good", "fails less often": "good", "worse": "bad", "fails more often": "bad"}
    parts = {"tables": tables(report), "legend": legend(report), "pictures": pictures, "details": details}
    return environment.get_template("report.html").render(report=report, colours=colours, **parts)


def rows_csv(report: "Report") -> str:
    """A line for each run at every learning rate."""
    rows, out = report.rows(), io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def tex(report: "Report") -> str:
    """The table of verdicts, for \\input into a document."""
    _, columns, rows = verdicts(report)
    lines = [" & ".join(map(_tex, row)) + r" \\" for row in (columns, *rows)]
    body = "\n".join([lines[0], r"\hline", *lines[1:]])
    return f"\\begin{{tabular}}{{l{'r' * (len(columns) - 1)}}}\n{body}\n\\end{{tabular}}\n"


def _details(report: "Report") -> dict[str, Any]:
    record = report.record
    return {"plan": record.plan, "config": record.config, "data": record.data, "environment": record.environment}


def _md(text: str) -> str:
    """Text that Markdown shows as it is."""
    return re.sub(r"([\\`*_\[\]<!|])", r"\\\1", text).replace("\n", " ")


def _tex(text: str) -> str:
    return "".join(TEX.get(c, c) for c in text)


def _svg(figure: Figure) -> str:
    """A picture as SVG text, without the header of a file."""
    out = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "report"}):
        figure.savefig(out, format="svg", bbox_inches="tight", metadata={"Date": None})
    return out.getvalue().partition("<svg")[1] + out.getvalue().partition("<svg")[2]
