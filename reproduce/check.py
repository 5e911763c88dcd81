"""Compare every number in README and docs with the records: `python reproduce/run.py --check`.

In README.md and docs, an invisible comment after a number names the value that it shows (values.py):

    SITAR has 72.2<!-- color_mnist; sitar_best; rho = 0.9; OOD; mean --> out of distribution.

A comment that names several values speaks for as many numbers before it, in their order. A comment reaches back to the
comment before it, or to the start of its paragraph, item or row of a table. Every number there that looks measured
needs a value, unless the comment says where it comes from:

- `<!-- not measured: REASON -->`: a setting, a value of the paper or of others, a constant. As the first line below the
  title of a page, with `on this page`, it speaks for the whole page (not in README.md and docs/results).
- `<!-- no record: WHERE IT COMES FROM -->`: measured once, without a record. The check lists them.

In the line below a table, these two speak for the whole table.

A value of runs whose preset has changed since has the mark ‡ before its comment, behind the number (61.7‡) or in the
label of its row. No other value has it. A page with a mark says what it marks: a sentence begins with "‡ marks".

What looks measured is a number with decimals, or one before %, "points", "±" or a unit of time or size (ms, s, min, h,
KB to TB, KiB to TiB). `NAME = NUMBER` is a setting. Code and links do not count. Pages that a table or a script makes
must be what it makes now. `--write` corrects what differs.

The records themselves are compared first, with the checksums in records/SHA256SUMS. After a new record, `--write` notes
its checksum.
"""

from __future__ import annotations

import importlib
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pages
import records
from records import EARLIER, MARKS
from values import Value, ValueNameError, evaluate, is_earlier, show

from sitar.files import write_atomic

COMMENT = re.compile(r"<!--(.*?)-->", re.DOTALL)
NUMBER = re.compile(rf"(?<![\w.,])[-−]?\d+(?:,\d{{3}})*(?:\.\d+)?(?!\w)|(?<![\w.])\.\d+|{records.NOT_RUN}")
UNMEASURED = re.compile(r"\s*(not measured|no record)( on this page)?: *\S")
NOT_PROSE = [  # what holds no measured number: each is blanked before numbers are looked for
    re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE),
    re.compile(r"(?<=\n\n)(?:    .*\n)+"),
    re.compile(r"``?(?:[^`\n]|\n(?!\n))*``?"),
    re.compile(r"\]\([^)]*\)"),
    re.compile(r"https?://\S+"),
]
SETTING = re.compile(
    r"(?:=|\b(?:alpha|beta|gamma|lambda|rho|q)(?: of)?)\s-?[\d.]+\b(?:,?\s(?:and|to|or)\s-?[\d.]+\b(?!\s?%))?"
    r"|\d+\.\d+\.\d+|Sec\.\s[\d.]+"
)
UNIT = r"(?:ms|s|min|h|kB|[KMGT]i?B)\b"  # of time or size
MEASURED = re.compile(rf"(?:\s(?:and|to|or|of)\s[\d.,]+)?‡?(?:\s?%|\s(?:points?\b|±|{UNIT}))")  # what stands after it
BLOCK = re.compile(r"\n[ \t]*\n|\n(?=\s*(?:[-*] |\d+\. |\|))")  # a paragraph, an item of a list, a row of a table

DECLARED_TABLE = re.compile(r"(?:^[ \t]*\|.*\n)+[ \t]*<!-- *(?:not measured|no record):", re.MULTILINE)
BREAKS = re.compile(
    r"^[ \t]*(?=<!--(?:(?!-->).)*-->(?![ \t]*(?:\n[ \t]*(?:[-*|]|\n|\Z)|\Z)))", re.DOTALL | re.MULTILINE
)


class Problem(NamedTuple):
    """A place where a page and the records differ."""

    file: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file.relative_to(records.HERE.parent)}:{self.line}: {self.text}"


class Stretch(NamedTuple):
    """A part of a page that a comment speaks for, up to the comment. At the end of a block there is no comment."""

    numbers: list[Number]
    comment: str | None
    start: int
    end: int


class Number(NamedTuple):
    """A number in a page."""

    start: int
    end: int
    text: str
    looks_measured: bool


def main(write: bool) -> int:
    """Check all pages, print what differs, and return the exit status."""
    if write:
        records.write_sums()
    if damaged := records.damaged():
        print(*damaged, sep="\n")
        print(
            f"{len(damaged)} records are not those of {records.SUMS}, so no number was compared. `git diff` shows what "
            "has changed, and `git checkout` brings it back. Of a new record, --check --write notes the checksum."
        )
        return 1
    if write:
        for file, made in made_pages().items():
            write_atomic(file, made.encode())
        for file in prose():
            write_atomic(file, corrected(file.read_text(encoding="utf-8")).encode())
    print("Every number is compared. This takes about a minute.", flush=True)
    problems = all_problems()
    for problem in problems:
        print(problem)
    texts = {file: file.read_text(encoding="utf-8") for file in prose()}
    texts |= {
        records.HERE / f"{name}.yaml": records.load_table(name).get("notes", "") for name in records.table_names()
    }
    found = [(file, line, kind) for file, text in texts.items() for line, kind in declared(text)]
    kinds = [kind for _, _, kind in found]
    unrecorded = [_place(file, line) for file, line, kind in found if kind == "no record"]
    print(f"{kinds.count(None)} comments name values of records. {len(unrecorded)} places have no record.")
    if unrecorded:
        print(f"These are {', '.join(unrecorded)}.")
    print(f"{len(problems)} places differ from the records." if problems else "All numbers are those of the records.")
    return 1 if problems else 0


def _place(file: Path, line: int) -> str:
    """Name a line of a page, and of a table only its file: notes are a part of it."""
    name = str(file.relative_to(records.HERE.parent))
    return f"{name}:{line}" if file.suffix == ".md" else name


def all_problems() -> list[Problem]:
    """Find every place in README, docs and notes that differs from the records or names no source."""
    root = records.HERE.parent
    problems = []
    made = made_pages()
    for file, text in made.items():
        there = file.read_text(encoding="utf-8") if file.exists() else ""
        if there != text:
            pairs = zip([*there.splitlines(), ""], [*text.splitlines(), ""], strict=False)
            line, (old, new) = next((i, pair) for i, pair in enumerate(pairs, 1) if pair[0] != pair[1])
            problems.append(Problem(file, line, f"the page says {old[:100]!r}, its source makes {new[:100]!r}"))
    for file in prose():
        strict, text = file in (root / "README.md", records.page_path(file.stem)), file.read_text(encoding="utf-8")
        found = [*page_problems(text, strict), *legend_problems(text)]
        problems += [Problem(file, line, said) for line, said in found]
    for name in records.table_names():
        problems += note_problems(records.HERE / f"{name}.yaml", records.load_table(name))
        for key in sorted(records.undeclared(records.record_so_far(name))):
            said = f"WITHOUT does not say what the code did without {key}, which not all runs of {name} know"
            problems.append(Problem(records.HERE / "records.py", 1, said))
    return problems


def note_problems(file: Path, table: dict[str, Any]) -> Iterator[Problem]:
    """Find the numbers in the notes of a table, and in the words of its figure, that are no values and not declared."""
    lines = file.read_text(encoding="utf-8").splitlines()
    for text in (table.get("notes", ""), table.get("figure", {}).get("shows", "")):
        filled = _blank(text, re.compile(r"\{\{.*?\}\}", re.DOTALL))
        for line, said in page_problems(filled):
            place = next((i for i, there in enumerate(lines, 1) if text.splitlines()[line - 1] in there), 1)
            yield Problem(file, place, said.replace("<!-- VALUE -->", "{{ VALUE }}"))


def made_pages() -> dict[Path, str]:
    """Return the text of every page of a table, and of every page that `render` of a script here makes.

    A script has the name of its page. It renders its record, if it has one of this name.
    """
    made = {records.page_path(name): pages.render(name) for name in records.table_names()}
    for script in sorted(records.HERE.glob("*.py")):
        page, record = records.page_path(script.stem), records.record_path(script.stem)
        if page.exists() and "\ndef render(" in script.read_text(encoding="utf-8"):
            given = [json.loads(record.read_text(encoding="utf-8"))] if record.exists() else []
            made[page] = importlib.import_module(script.stem).render(*given)
    return made


def prose() -> list[Path]:
    """List the pages that a person wrote. The page of the figures belongs to figures.py, which tests compare."""
    root = records.HERE.parent
    made = [*map(records.page_path, records.table_names()), root / "docs" / "figures.md"]
    made += [records.page_path(script.stem) for script in records.HERE.glob("*.py")]
    return [file for file in [root / "README.md", *sorted(root.glob("docs/**/*.md"))] if file not in made]


def page_problems(text: str, strict: bool = True) -> Iterator[tuple[int, str]]:
    """Find the numbers of a page that differ from the records or name no source, each with its line."""
    whole_page = any("on this page" in match[1] for match in COMMENT.finditer(text) if UNMEASURED.match(match[1]))
    if whole_page and strict:
        yield 1, "README.md, docs/results and notes say for each number where it comes from, not for the whole page"
    for match in BREAKS.finditer(text):
        yield text.count("\n", 0, match.end()) + 1, "a comment at the start of a line breaks its paragraph: move it up"
    for numbers, comment, begin, start in stretches(text):
        values: list[Value] = []
        if comment is not None and not UNMEASURED.match(comment):
            try:
                values = evaluate(comment)
            except ValueNameError as problem:
                yield text.count("\n", 0, start) + 1, str(problem)
                continue
            shown = numbers[len(numbers) - len(values) :]
            if len(values) > len(numbers):
                yield (
                    text.count("\n", 0, start) + 1,
                    f"{len(values)} values but {len(numbers)} numbers: {comment.strip()}",
                )
                continue
            for number, value in zip(shown, values, strict=True):
                if number.text.replace("−", "-") != (new := written(number.text, value.number)):
                    line = text.count("\n", 0, number.start) + 1
                    yield line, f"printed {number.text}, the record has {new} ({' '.join(comment.split())})"
            if is_earlier(comment) != (EARLIER in text[begin:start]):
                wrong = "has a mark without need" if EARLIER in text[begin:start] else f"needs the mark {EARLIER}"
                why = f"{EARLIER} is for runs whose preset has changed since"
                yield text.count("\n", 0, start) + 1, f"a value {wrong}, {why} ({' '.join(comment.split())})"
        elif comment is not None or (whole_page and not strict):
            continue
        for number in numbers[: len(numbers) - len(values)]:
            if number.looks_measured:
                line = text.count("\n", 0, number.start) + 1
                yield line, f"{number.text} has no source: add <!-- VALUE --> or <!-- not measured: REASON -->"


def corrected(text: str) -> str:
    """Return a page with the numbers that the records have, and the marks that they need."""
    changes = []
    for numbers, comment, begin, start in stretches(text):
        if comment is None or UNMEASURED.match(comment):
            continue
        try:
            values = evaluate(comment)
        except ValueNameError:
            continue
        if len(values) <= len(numbers):
            shown = numbers[len(numbers) - len(values) :]
            changes += [(n.start, n.end, written(n.text, v.number)) for n, v in zip(shown, values, strict=True)]
            marks = [match.span() for match in re.finditer(f" ?{EARLIER}", text[begin:start])]
            if is_earlier(comment) and shown and not marks:
                changes.append((shown[-1].end, shown[-1].end, EARLIER))
            elif not is_earlier(comment):
                changes += [(begin + first, begin + last, "") for first, last in marks]
    for first, last, new in sorted(changes, reverse=True):
        text = text[:first] + new + text[last:]
    return text


def legend_problems(text: str) -> Iterator[tuple[int, str]]:
    """Find a page that has marks and does not explain them, or explains them and has none."""
    quiet = _blank(text, *NOT_PROSE)
    explained, marks = MARKS in quiet, [match.start() for match in re.finditer(EARLIER, quiet)]
    if marks and not explained:
        yield text.count("\n", 0, marks[0]) + 1, f'no sentence of this page says what {EARLIER} marks ("{MARKS} ...")'
    if explained and len(marks) == 1:
        yield text.count("\n", 0, marks[0]) + 1, f"this page explains {EARLIER} and has none"


def declared(text: str) -> Iterator[tuple[int, str | None]]:
    """Name line and kind of every comment that speaks for numbers: `not measured`, `no record`, or None for a value."""
    for _, comment, _, end in stretches(text):
        if comment is not None:
            match = UNMEASURED.match(comment)
            yield text.count("\n", 0, end) + 1, match[1] if match else None


def written(shown: str, number: float | None) -> str:
    """Write a value with as many decimals as the number that is shown, and without a leading zero if that has none."""
    decimals = len(shown.partition(".")[2]) if shown != records.NOT_RUN else 1
    text = show(number, decimals)
    text = text if "," in shown or number is None else text.replace(",", "")
    return text.removeprefix("0") if shown.startswith(".") else text


def stretches(text: str) -> Iterator[Stretch]:
    """Cut a page into the parts that a comment speaks for: what stands before it in its block, after the one before."""
    quiet = _blank(text, *NOT_PROSE)
    comments = [match for match in COMMENT.finditer(quiet) if _is_source(match[1])]
    edges = [0, *(match.start() for match in BLOCK.finditer(quiet)), len(quiet)]
    settings = [match.span() for match in DECLARED_TABLE.finditer(quiet)]
    quiet = _blank(quiet, COMMENT)
    settings += [match.span() for match in SETTING.finditer(quiet)]
    for start, end in itertools.pairwise(edges):
        here = start
        for match in comments:
            if start <= match.start() < end:
                yield Stretch(list(_numbers(quiet, here, match.start(), settings)), match[1], here, match.start())
                here = match.end()
        yield Stretch(list(_numbers(quiet, here, end, settings)), None, here, end)


def _numbers(quiet: str, start: int, end: int, settings: list[tuple[int, int]]) -> Iterator[Number]:
    for match in NUMBER.finditer(quiet, start, end):
        word = match[0]
        measured = "." in word or MEASURED.match(quiet, match.end())
        setting = any(a <= match.start() < b for a, b in settings)
        yield Number(match.start(), match.end(), word, bool(measured) and not setting and word != records.NOT_RUN)


def _is_source(comment: str) -> bool:
    return bool(UNMEASURED.match(comment)) or ";" in comment or ".json:" in comment


def _blank(text: str, *patterns: re.Pattern[str]) -> str:
    """Replace what a pattern finds by spaces, so that every place keeps its number. Line ends stay."""
    for pattern in patterns:
        text = pattern.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    return text
