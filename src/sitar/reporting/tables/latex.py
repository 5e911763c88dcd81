"""Write a table as LaTeX, with the rules of booktabs, ready for a paper."""

from __future__ import annotations

import re

from sitar.reporting.tables.table import Table

NEEDS = r"% needs \usepackage{booktabs}"
ESCAPES = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"$<$", ">": r"$>$", "|": r"\textbar{}",
    '"': r"\textquotedbl{}", "±": r"$\pm$", "†": r"$^\dagger$",
    "§": r"$^\S$", "¶": r"$^\P$", "‖": r"$^\|$", "◊": r"$^\diamond$", "–": "--", "\n": " ",
}  # fmt: skip
ESCAPED = re.compile("|".join(map(re.escape, ESCAPES)))
NEGATIVE = re.compile(r"(?<![\w.)\]-])-(?=\d)")  # a sign, and no hyphen


def latex(table: Table, label: str) -> str:
    """Return a `table` environment. Names are escaped, the note stands below, and `label` is for \\ref."""
    numeric = [table.is_numeric(column) for column in range(len(table.columns))]
    lines = [
        [_bold(_text(cell)) if (row, column) in table.bold else _text(cell) for column, cell in enumerate(cells)]
        for row, cells in enumerate(table.rows)
    ]
    return "\n".join(
        [
            NEEDS,
            r"\begin{table}[t]",
            r"\centering",
            rf"\caption{{{_text(table.title)}}}",
            rf"\label{{{label}}}",
            rf"\begin{{tabular}}{{{''.join('r' if right else 'l' for right in numeric)}}}",
            r"\toprule",
            _line([_text(column) for column in table.columns]),
            r"\midrule",
            *map(_line, lines),
            r"\bottomrule",
            r"\end{tabular}",
            *([rf"\par\smallskip{{\footnotesize {_text(table.note)}\par}}"] if table.note else []),
            r"\end{table}",
        ]
    )


def _line(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"


def _bold(text: str) -> str:
    return rf"\textbf{{{text}}}"


def _text(text: str) -> str:
    """Escape what LaTeX would read as a command. A minus sign becomes one."""
    signed = re.split(NEGATIVE, text)
    return "$-$".join(ESCAPED.sub(lambda found: ESCAPES[found.group()], part) for part in signed)
