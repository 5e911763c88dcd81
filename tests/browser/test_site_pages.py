"""The site in a real browser, on a desk and on a phone. It loads nothing from other hosts."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from helpers.site import build

CHROMIUM = os.environ.get("SITAR_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
PAGES = [
    "index", "install", "which_method", "own_data", "architecture", "tutorials/xrays", "results/baselines",
    "results/claims",
    "methods/sitar", "reference/python", "reference/commands", "repository/CONTRIBUTING",
]  # fmt: skip

if not os.environ.get("SITAR_BROWSER"):  # where it is set, a missing browser is a failure
    pytest.importorskip("playwright", reason="needs Playwright: pip install --group browser")
    if CHROMIUM is None:
        pytest.skip("needs Chromium: apt-get install chromium", allow_module_level=True)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the site, which is served here."""
    folder = build(tmp_path_factory.mktemp("site"))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module", params=[1280, 390])
def window(request: pytest.FixtureRequest) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield chromium.new_context(viewport={"width": request.param, "height": 900})
        chromium.close()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_the_window_and_loads_nothing_from_elsewhere(name: str, site: str, window: Any) -> None:
    page = window.new_page()
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: problems.append(request.url) if not request.url.startswith(site) else None)
    page.goto(f"{site}/{name}.html")
    page.wait_for_timeout(200)
    width = page.viewport_size["width"]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert not page.evaluate("[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)")
    assert page.locator("article h1").count() == 1
    page.close()
    assert not problems


def test_search_finds_a_word_of_the_glossary(site: str, window: Any) -> None:
    page = window.new_page()
    page.goto(f"{site}/index.html", wait_until="networkidle")
    if page.viewport_size["width"] < 960:
        page.locator("label[for=__search].md-header__button").click()
    page.locator(".md-search__input").press_sequentially("worst group")
    page.locator(".md-search-result__item").first.wait_for()
    page.close()
