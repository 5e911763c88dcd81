"""Tables of a comparison as LaTeX: escaped, whole, and bold only where it says something."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from helpers.made_runs import make_run
from sitar.reporting.comparison import group_runs, read_runs
from sitar.reporting.tables.latex import latex
from sitar.reporting.tables.runs import compare_table, with_best_in_bold
from sitar.reporting.tables.table import Table

NASTY = r"50% of a_b & c#1 {x} \input{y} ~ ^ $ <z> | † ± –"
TABLE = Table(
    NASTY,
    ["runs", "ood_test worst", "against"],
    [[NASTY, "71.2 ± 0.4", "cannot be told apart (-2.0 to 1.4)"], ["seed-3 x-1", "-3.0", "–"]],
    f"Note: {NASTY}",
    frozenset({(0, 1)}),
)


def test_names_are_escaped_and_signs_are_signs() -> None:
    text = latex(TABLE, "tab:x")
    escaped = (
        r"50\% of a\_b \& c\#1 \{x\} \textbackslash{}input\{y\} \textasciitilde{} \textasciicircum{} \$ $<$z$>$ "
        r"\textbar{} $^\dagger$ $\pm$ --"
    )
    assert rf"{escaped} & \textbf{{71.2 $\pm$ 0.4}} & cannot be told apart ($-$2.0 to 1.4) \\" in text
    assert r"seed-3 x-1 & $-$3.0 & -- \\" in text, "a hyphen stays one"
    assert text.count(escaped) == 3, "caption, cell and note"


def test_the_structure_is_whole() -> None:
    text = latex(TABLE, "tab:x")
    begun, ended = (re.findall(rf"\\{word}{{(\w+)}}", text) for word in ("begin", "end"))
    assert begun == ended[::-1] == ["table", "tabular"]
    assert text.startswith("% needs \\usepackage{booktabs}\n")
    assert [text.count(rf"\{rule}") for rule in ("toprule", "midrule", "bottomrule")] == [1, 1, 1]
    (columns,) = re.findall(r"\\begin{tabular}{(\w+)}", text)
    assert columns == "lrl"
    lines = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert [len(re.findall(r"(?<!\\)&", line)) + 1 for line in lines] == [len(columns)] * 3
    without_escapes = re.sub(r"\\[{}]", "", text)
    assert without_escapes.count("{") == without_escapes.count("}")
    assert text.replace(r"\$", "").count("$") % 2 == 0


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no pdflatex")
def test_it_compiles(tmp_path: Path) -> None:
    head = r"\documentclass{article}\usepackage[T1]{fontenc}\usepackage{booktabs}\begin{document}"
    (tmp_path / "x.tex").write_text("\n".join([head, latex(TABLE, "tab:x"), r"\end{document}"]), encoding="utf-8")
    command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "x.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout


def test_the_best_is_bold_where_it_can_be_told_apart_from_the_next(tmp_path: Path) -> None:
    """DFR was given group labels, so it is no rival; the other two are told apart on one split only."""
    runs = [make_run(tmp_path / name, name, accuracy=accuracy, samples=600, explained=False)
            for name, accuracy in (("dfr", 0.99), ("erm", 0.6), ("jtt", 0.8))]  # fmt: skip
    rows = group_runs(read_runs([run.path for run in runs]))
    table = with_best_in_bold(compare_table(rows), rows, ("average", "worst_group"))
    assert table.bold == {(2, column) for column in (2, 3, 4, 5)}
    assert table.note.endswith("Bold: the best, where it can be told apart from the next.")
    same = group_runs(
        read_runs([make_run(tmp_path / f"{n}2", n, accuracy=0.8, explained=False).path for n in ("jtt", "lff")])
    )
    table = with_best_in_bold(compare_table(same), same, ("average", "worst_group"))
    assert table.bold == frozenset()
    assert "Bold" not in table.note


def test_nothing_is_bold_where_rows_cannot_be_compared(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / name, name, accuracy=accuracy, explained=False)
            for name, accuracy in (("erm", 0.3), ("jtt", 0.9))]  # fmt: skip
    runs[0].predictions_file.unlink()
    rows = group_runs(read_runs([run.path for run in runs]))
    assert with_best_in_bold(compare_table(rows), rows, ("average", "worst_group")).bold == frozenset()
