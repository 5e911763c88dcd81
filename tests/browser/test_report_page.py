"""The report in a real browser: Playwright drives the system's Chromium."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.made_runs import make_run
from sitar.reporting.html.report import write_report
from sitar.reporting.html.sections import SECTIONS

CHROMIUM = os.environ.get("SITAR_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
EVIL = "<script>alert(1)</script>"

if not os.environ.get("SITAR_BROWSER"):  # where it is set, a missing browser is a failure
    pytest.importorskip("playwright", reason="needs Playwright: pip install --group browser")
    if CHROMIUM is None:
        pytest.skip("needs Chromium: apt-get install chromium", allow_module_level=True)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    classes = (EVIL, "digits 5-9")
    runs = [
        make_run(place / "erm", "erm", accuracy=0.5, classes=classes).path,
        make_run(place / "control", alpha=0.0, accuracy=0.6, classes=classes).path,
        make_run(place / "sitar", accuracy=0.8, classes=classes).path,
    ]
    return write_report([*runs, place / "nothing"], place / "report.html")


@pytest.fixture
def page(browser: Any, report: Path) -> Iterator[Any]:
    """The open report; afterwards nothing may have been fetched, logged as an error, or alerted."""
    with Watched(browser, report, width=1280, scheme="light") as opened:
        yield opened


class Watched:
    def __init__(self, browser: Any, report: Path, width: int, scheme: str) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, offline=True)
        self.report, self.problems = report, []

    def __enter__(self) -> Any:
        page = self.context.new_page()
        page.on("console", lambda message: self.problems.append(message.text))
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("dialog", lambda dialog: (self.problems.append(dialog.message), dialog.dismiss()))
        page.on("request", self._request)
        page.goto(self.report.as_uri())
        return page

    def _request(self, request: Any) -> None:
        if not request.url.startswith(("data:", self.report.as_uri())):
            self.problems.append(request.url)

    def __exit__(self, *_: object) -> None:
        self.context.close()
        assert self.problems == []


def test_every_section_renders(page: Any) -> None:
    for name in SECTIONS:
        box = page.locator(f"#{name}0").bounding_box()
        assert box is not None, name
        assert box["height"] > 40, name
    assert page.locator("#accuracy0 .fill").first.bounding_box()["width"] > 10
    assert page.locator("#training0 > .cards polyline").count() == 3
    assert all(page.evaluate("[...document.images].map((image) => image.naturalWidth > 0)"))


def test_a_slider_changes_the_picture_and_the_probability(page: Any) -> None:
    card = page.locator(".axis").first
    picture, chance = card.locator(".tile.now"), card.locator(".probability").first
    outer, inner = card.bounding_box(), chance.bounding_box()
    assert outer["y"] < inner["y"] < inner["y"] + inner["height"] < outer["y"] + outer["height"]
    before = picture.screenshot(), chance.inner_text()
    slider = card.locator("input[type=range]")
    slider.focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    after = picture.screenshot(), chance.inner_text()
    assert before[0] != after[0]
    assert before[1] == "50 %"
    assert after[1] == "86 %"
    assert card.locator(".probabilities .fill").first.evaluate("bar => bar.style.width") == "86%"


def test_another_model_and_another_start_can_be_chosen(page: Any) -> None:
    traversals = page.locator(".traversals")
    first = traversals.locator(".tile.now").first.screenshot()
    traversals.locator("select.start").select_option(index=0)
    second = traversals.locator(".tile.now").first.screenshot()
    traversals.locator("select.run").select_option(index=0)
    third = traversals.locator(".tile.now").first.screenshot()
    assert len({first, second, third}) == 3


def test_images_of_two_models_can_be_chosen(page: Any) -> None:
    box = page.locator(".mistakes")
    count = box.locator("figure").count()
    assert count > 0
    assert box.locator("figure").first.inner_text().count("taken for") == 1
    box.locator("select.by").select_option(index=2)
    box.locator("select.for").select_option(index=2)
    assert box.locator(".count").inner_text() == "Choose two different models."
    assert box.locator("figure").count() == 0
    box.locator("select.for").select_option(index=0)
    assert box.locator("figure").count() > 0


def test_more_images_are_shown_on_request(page: Any) -> None:
    box = page.locator(".mistakes")
    assert box.locator("figure").count() == 24
    box.locator("button.more").click()
    assert box.locator("figure").count() > 24
    assert box.locator("button.more").is_hidden()


def test_a_name_with_markup_is_text(page: Any) -> None:
    assert page.locator("#confusion0 th", has_text=EVIL).count() > 0
    assert page.locator(".probabilities .name", has_text=EVIL).first.is_visible()
    assert page.locator("#groups0 h3", has_text=EVIL).count() > 0


def test_it_works_by_keyboard_alone(page: Any) -> None:
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.tagName"))
    assert {"A", "SELECT", "INPUT", "SUMMARY"} <= reached


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_fits_the_screen_and_follows_the_systems_colours(
    browser: Any, report: Path, width: int, scheme: str
) -> None:
    with Watched(browser, report, width, scheme) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        text, back = page.evaluate(
            "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
        )
        dark = brightness(back) < brightness(text)
        assert dark == (scheme == "dark")
        for small in page.locator("nav a, .note, svg text, th, td, figcaption").all()[:200]:
            if small.is_visible():
                assert float(small.evaluate("e => parseFloat(getComputedStyle(e).fontSize)")) >= 11.5


def brightness(color: str) -> float:
    return sum(float(part) for part in color[color.index("(") + 1 : -1].split(",")[:3])


@pytest.mark.parametrize(("axes", "classes"), [(2, 2), (50, 100)])
def test_few_and_many_axes_and_classes(browser: Any, axes: int, classes: int, tmp_path: Path) -> None:
    names = tuple(f"a class with a rather long name {i}" for i in range(classes))
    run = make_run(tmp_path / "run", axes=axes, classes=names, samples=max(240, 10 * classes), accuracy=0.6)
    with Watched(browser, write_report([run.path], tmp_path / "r.html"), 390, "light") as page:
        assert page.locator(".axis").count() == axes
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.locator(".axis").first.locator(".name").count() == min(classes, 4)


@pytest.mark.parametrize("width", [1280, 390])
def test_many_rows_are_told_apart_and_labels_do_not_break_within_words(
    browser: Any, width: int, tmp_path: Path
) -> None:
    names = (
        "erm",
        "jtt",
        "lff",
        "dfr",
        "irm",
        "curvature",
        "jacobian",
        "chroma_vae",
        "cvar_dro",
        "sitar_best_direction",
    )
    runs = [make_run(tmp_path / name, name, explained=False).path for name in (*names, "w" * 60)]
    looks = "marks => marks.map((mark) => { const s = getComputedStyle(mark); return s.stroke + s.strokeDasharray; })"
    broken = """heads => heads.flatMap((head) => [...head.childNodes]).filter((node) => {
        const range = document.createRange();
        range.selectNodeContents(node);
        return node.textContent.length < 20 && range.getClientRects().length > 1;
    }).map((node) => node.textContent)"""
    with Watched(browser, write_report(runs, tmp_path / "r.html"), width, "light") as page:
        legend = page.locator("#training0 > .legend line").evaluate_all(looks)
        assert len({*legend}) == len(runs)
        assert legend == page.locator("#training0 > .cards polyline").evaluate_all(looks)
        assert page.locator(".bars th").evaluate_all(broken) == []
        over = "heads => heads.filter((head) => head.scrollWidth > head.clientWidth + 1).length"
        assert page.locator(".bars th:visible").evaluate_all(over) == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= width
