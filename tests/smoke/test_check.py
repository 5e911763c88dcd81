"""The check of numbers: README and docs say what the records say, and a page that does not is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.bits import damaged, some_bits
from helpers.scripts import script
from sitar.presets import load_config

from .test_reproduce import TABLE, made


@pytest.fixture
def check():
    return script("reproduce/check.py")


@pytest.fixture
def own(check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of a test's own: a README, a page, and the table `t` with its record and page."""
    home = tmp_path / "reproduce"
    (home / "records").mkdir(parents=True)
    (tmp_path / "docs" / "results").mkdir(parents=True)
    monkeypatch.setattr(check.records, "HERE", home)
    (home / "t.yaml").write_text(TABLE, encoding="utf-8")
    runs = [made("a", column, seed, value) for column in ("low", "high") for seed, value in enumerate((0.5, 0.61))]
    check.records.write_record("t", runs, {})
    (tmp_path / "README.md").write_text(
        "# Title\n\nOf 10 we have 55.5 ± 7.8<!-- t; a; low; OOD; mean ± sd --> at rho = 0.9, and\n"
        "61<!-- t; a; high; OOD; high --> at best.\n",
        encoding="utf-8",
    )
    assert check.main(write=True) == 0  # writes the page of the table
    return tmp_path


def said(check) -> list[str]:
    return [str(problem) for problem in check.all_problems()]


def test_readme_docs_and_notes_say_what_the_records_say(check, capsys: pytest.CaptureFixture[str]) -> None:
    """This one is about the repository itself. `python reproduce/run.py --check --write` corrects numbers."""
    status = check.main(write=False)
    assert status == 0, capsys.readouterr().out


def test_one_flipped_bit_of_a_record_is_named_and_no_number_compared(
    check, own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = own / "reproduce" / "records" / "t.json"
    for bit in some_bits(record.read_bytes(), 300):
        with damaged(record, bit):
            assert check.main(write=False) == 1
            assert "reproduce/records/t.json: it has changed" in capsys.readouterr().out
    sums = record.with_name("SHA256SUMS")
    for bit in range(8 * sums.stat().st_size):
        with damaged(sums, bit):
            assert check.main(write=False) == 1
            assert "records/t.json: it" in capsys.readouterr().out
    record.with_name("new.json").write_text("{}")
    assert check.main(write=False) == 1
    assert "reproduce/records/new.json: it is new" in capsys.readouterr().out
    assert check.main(write=True) == 0
    record.with_name("new.json").unlink()
    assert check.main(write=False) == 1
    assert "reproduce/records/new.json: it is missing" in capsys.readouterr().out


def test_a_wrong_number_fails_and_is_written_again(check, own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    readme = own / "README.md"
    right = readme.read_text(encoding="utf-8")
    readme.write_text(right.replace("61<", "62<").replace("± 7.8", "± 7.9"), encoding="utf-8")
    assert check.main(write=False) == 1
    printed = capsys.readouterr().out
    assert "README.md:3: printed 7.9, the record has 7.8 (t; a; low; OOD; mean ± sd)" in printed
    assert "README.md:4: printed 62, the record has 61" in printed
    assert "2 places differ" in printed
    assert check.main(write=True) == 0
    assert readme.read_text(encoding="utf-8") == right


def test_a_number_without_a_source_fails(check, own: Path) -> None:
    page = own / "docs" / "page.md"
    page.write_text("A page.\n\nIt has 71.2 and 40 % and 3 points, at beta = 1.5.\n", encoding="utf-8")
    assert [text.partition(" has")[0] for text in said(check)] == [f"docs/page.md:3: {n}" for n in ("71.2", "40", "3")]
    page.write_text("It has 71.2.<!-- not measured: the paper's -->\n\nAnd 40 %.<!-- no record: a look -->\n")
    assert said(check) == []
    page.write_text("It has 71.2.\n- And 40 %.<!-- not measured: another item -->\n", encoding="utf-8")
    assert [text[:17] for text in said(check)] == ["docs/page.md:1: 7"]
    page.write_text("`71.2` and [a link](1.5) and 2.15.1\n\n```\n71.2\n```\n\n    f = 71.2 %\n", encoding="utf-8")
    assert said(check) == []
    page.write_text("- an item\n    with 71.2\n\na stray ` and\n\n40 % and another `\n", encoding="utf-8")
    assert [text[:16] for text in said(check)] == ["docs/page.md:2: ", "docs/page.md:6: "]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It took 5 min 40 s on 2 cores.", ["5", "40"]),
        ("A process held 103 of 100 MB.", ["103", "100"]),
        ("Between 15 and 16 s, or 300 ms, or 2 h.", ["15", "16", "300", "2"]),
        ("12 GB, 94 MB, 8 KB and 512 MiB.", ["12", "94", "8", "512"]),
        ("At 64 GB/s.", ["64"]),
        ("10 MNIST digits, 3 sites, 4 hospitals, 2 minima, 5 GBs and `12 GB`.", []),
    ],
)
def test_a_number_of_time_or_size_looks_measured(check, own: Path, text: str, found: list[str]) -> None:
    (own / "docs" / "page.md").write_text(f"{text}\n", encoding="utf-8")
    assert said(check) == [
        f"docs/page.md:1: {n} has no source: add <!-- VALUE --> or <!-- not measured: REASON -->" for n in found
    ]


def test_places_without_a_record_are_listed(check, own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own / "docs" / "page.md").write_text("Text.\n\nIt has 71.2, and\n40 %.<!-- no record: a look -->\n")
    (own / "reproduce" / "t.yaml").write_text(TABLE + "notes: |\n  It has 4 %.<!-- no record: a look -->\n")
    assert check.main(write=True) == 0
    printed = capsys.readouterr().out
    assert "2 places have no record.\nThese are docs/page.md:4, reproduce/t.yaml.\n" in printed


def test_a_comment_speaks_for_its_own_block_only(check, own: Path) -> None:
    page = own / "docs" / "page.md"
    page.write_text("| x | 1.5 |\n| a | 50.0 | 61.0<!-- t; a; low; OOD; low to high --> |\n", encoding="utf-8")
    assert [text[:19] for text in said(check)] == ["docs/page.md:1: 1.5"]
    page.write_text("Ten\n\n<!-- t; a; low; OOD; low -->\n", encoding="utf-8")
    assert "1 values but 0 numbers" in said(check)[0]


def test_a_table_may_be_declared_in_the_line_below_it(check, own: Path) -> None:
    page = own / "docs" / "page.md"
    page.write_text("| x | 1.5 |\n|---|---|\n| y | 2.5 |\n<!-- not measured: settings -->\n", encoding="utf-8")
    assert said(check) == []
    page.write_text("It has 1.5.\n\n| y | 2.5 |\n<!-- not measured: settings -->\n", encoding="utf-8")
    assert [text[:19] for text in said(check)] == ["docs/page.md:1: 1.5"]


def test_a_comment_may_not_break_its_paragraph(check, own: Path) -> None:
    page = own / "docs" / "page.md"
    page.write_text("It has 1.5\n<!-- not measured: x --> and more.\n", encoding="utf-8")
    assert said(check) == ["docs/page.md:2: a comment at the start of a line breaks its paragraph: move it up"]
    page.write_text("It has 1.5\n<!-- not measured: x -->\n\n- and more.\n", encoding="utf-8")
    assert said(check) == []


def test_a_whole_page_may_be_declared_but_not_readme_or_results(check, own: Path) -> None:
    text = "# Page\n\n<!-- not measured on this page: values of the paper -->\n\nIt has 71.2.\n"
    (own / "docs" / "page.md").write_text(text, encoding="utf-8")
    assert said(check) == []
    (own / "docs" / "results" / "page.md").write_text(text, encoding="utf-8")
    assert len(said(check)) == 2  # the number, and the declaration
    assert all(problem.startswith("docs/results/page.md") for problem in said(check))


def test_an_unknown_row_is_named_with_its_line(check, own: Path) -> None:
    (own / "docs" / "page.md").write_text("x\n50.0<!-- t; c; low; OOD; low -->\n", encoding="utf-8")
    assert said(check) == ["docs/page.md:2: there is no row 'c'; rows are 'a', 'b', 'paper, X'"]


def make_earlier(check, **settings: object) -> None:
    """Give the runs of row `a` settings that its preset does not have today."""
    runs = [{**run, "settings": run["column"]} for run in check.records.load_record("t")["runs"]]
    now = {run["column"]: load_config(run["preset"], run["overrides"], 0).to_dict() for run in runs}
    then = {name: {**check.records.decisive(one), "train.epochs": 7, **settings} for name, one in now.items()}
    check.records.write_record("t", runs, then)
    check.records.write_sums()


EXPLAINED = "\n\n‡ marks runs of earlier settings.\n"


def test_a_value_of_earlier_runs_needs_its_mark_and_no_other_has_one(
    check, own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = own / "docs" / "page.md"
    plain = "We have 55.5 ± 7.8,<!-- t; a; low; OOD;\nmean ± sd --> they 71.5.<!-- t; paper, X; low; OOD; mean -->\n"
    marked = plain.replace("7.8,", "7.8‡,") + EXPLAINED
    in_row = "| a ‡ | 50.0 | 61.0<!-- t; a; low; OOD; low to high --> |\n" + EXPLAINED
    page.write_text(marked, encoding="utf-8")
    assert [text.partition(",")[0] for text in said(check)] == ["docs/page.md:1: a value has a mark without need"]
    assert check.main(write=True) == 1  # what is left is the sentence
    assert page.read_text(encoding="utf-8") == plain + EXPLAINED
    assert said(check) == ["docs/page.md:5: this page explains ‡ and has none"]
    page.write_text(plain, encoding="utf-8")
    assert said(check) == []

    make_earlier(check)
    (own / "README.md").write_text("", encoding="utf-8")
    found = [text for text in said(check) if text.startswith("docs/page.md")]
    assert [text.partition(",")[0] for text in found] == ["docs/page.md:1: a value needs the mark ‡"]
    capsys.readouterr()
    assert check.main(write=True) == 1
    assert "docs/page.md:1: no sentence of this page says what ‡ marks" in capsys.readouterr().out
    assert page.read_text(encoding="utf-8") == plain.replace("7.8,", "7.8‡,")
    for right in (marked, in_row):
        page.write_text(right, encoding="utf-8")
        assert said(check) == []
    page.write_text(marked.replace("71.5.", "71.5‡."), encoding="utf-8")
    assert "a value has a mark without need" in said(check)[0]


def test_notes_mark_and_explain_values_of_earlier_runs(check, own: Path) -> None:
    (own / "reproduce" / "u.yaml").write_text(TABLE + "notes: It has {{ t; a; low; OOD; mean }}.\n", encoding="utf-8")
    page = own / "docs" / "results" / "u.md"
    assert check.main(write=True) == 0
    assert page.read_text(encoding="utf-8").endswith("It has 55.5.\n")
    make_earlier(check)
    assert "It has 55.5‡.\n\n‡ marks runs" in check.pages.render("u")
    assert "\n‡ marks" not in check.pages.render("t")  # whose own rows say which settings changed


def test_a_setting_that_nobody_declared_is_named(check, own: Path) -> None:
    make_earlier(check)
    assert not any("records.py" in text for text in said(check))
    make_earlier(check, **{"train.gone": 1})
    assert "reproduce/records.py:1: WITHOUT does not say what the code did without train.gone" in "\n".join(said(check))


def test_cells_that_were_not_run_say_so(check, own: Path) -> None:
    page = own / "docs" / "page.md"
    page.write_text("| 55.5 | 12.3<!-- t; a and b; low; OOD; mean --> |\n", encoding="utf-8")
    assert "printed 12.3, the record has not run yet" in said(check)[0]
    assert check.main(write=True) == 0
    assert page.read_text(encoding="utf-8").startswith("| 55.5 | not run yet<")
    assert check.main(write=True) == 0


def test_a_page_that_its_table_does_not_make_fails(check, own: Path) -> None:
    page = own / "docs" / "results" / "t.md"
    page.write_text(page.read_text(encoding="utf-8").replace("55.5 ± 7.8", "55.6 ± 7.8", 1), encoding="utf-8")
    (problem,) = said(check)
    assert problem.startswith("docs/results/t.md:11: the page says '| a | 55.6")


def test_numbers_in_notes_are_values(check, own: Path) -> None:
    table = own / "reproduce" / "t.yaml"
    table.write_text(TABLE + "notes: The mean is {{ t; a; low; OOD; mean }} and not 61.2.\n", encoding="utf-8")
    assert check.main(write=True) == 1
    assert said(check) == ["reproduce/t.yaml:10: 61.2 has no source: add {{ VALUE }} or <!-- not measured: REASON -->"]
    assert "The mean is 55.5 and not 61.2." in (own / "docs" / "results" / "t.md").read_text(encoding="utf-8")
