"""`sitar ask` in a real browser: answers by keyboard, a kill and a restart in between, and nothing lost."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from helpers.runs import run, settings
from sitar.analysis.answers import read_answers

CHROMIUM = os.environ.get("SITAR_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
CLASSES = ("<i>cat</i>", "dog")

if not os.environ.get("SITAR_BROWSER"):  # where it is set, a missing browser is a failure
    pytest.importorskip("playwright", reason="needs Playwright: pip install --group browser")
    if CHROMIUM is None:
        pytest.skip("needs Chromium: apt-get install chromium", allow_module_level=True)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tiny runs, of which one looks at the left half and one at the right half, and new images."""
    root, random = tmp_path_factory.mktemp("ask"), np.random.default_rng(0)
    (root / "data").mkdir()
    rows = ["path,left,right"]
    for i in range(80):
        left, right = i % 2, i // 2 % 2
        halves(random, left, right).save(root / "data" / f"{i}.png")
        rows.append(f"{i}.png,{CLASSES[left]},{CLASSES[right]}")
    (root / "data" / "table.csv").write_text("\n".join(rows))
    for number, side in enumerate(("left", "right")):
        data = {"name": "table", "root": str(root / "data"), "image_size": 16, "label_column": side}
        tiny = {"latent_dim": 4, "channels": [4], "hidden": 8}
        train = {"epochs": 12, "batch_size": 16, "learning_rate": 0.02}
        run(settings("erm", data=data, model=tiny, train=train), root / f"run{number}")
    (root / "new").mkdir()
    for i in range(80):
        halves(random, *random.integers(0, 2, 2)).save(root / "new" / f"{i:02}.png")
    return root


def halves(random: np.random.Generator, left: int, right: int) -> Image.Image:
    """An image whose halves are dark (0) or bright (1)."""
    pixels = random.integers(0, 60, (16, 16, 3), dtype=np.uint8)
    pixels[:, :8] += np.uint8(150 * left)
    pixels[:, 8:] += np.uint8(150 * right)
    return Image.fromarray(pixels)


@contextmanager
def asking(place: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`sitar ask` in a process of its own, and the address that it prints."""
    command = [sys.executable, "-u", "-m", "sitar", "ask", "run0", "run1", "--images", "new", "--device", "cpu"]
    environment = {**os.environ, "BROWSER": "true"}  # the command `true`, which opens nothing
    process = subprocess.Popen(
        command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    stop = threading.Timer(120, process.kill)
    stop.start()
    try:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if line.startswith("Questions: "):
                break
        assert said[-1].startswith("Questions: "), "".join(said)
        yield process, said[-1].split()[1]
    finally:
        stop.cancel()
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield chromium
        chromium.close()


@contextmanager
def watched(browser: Any, address: str, allowed: tuple[str, ...] = ()) -> Iterator[Any]:
    """The open page; afterwards nothing may have been asked of another address, logged as an error, or alerted."""
    problems: list[str] = []

    def request(one: Any) -> None:
        if not one.url.startswith(("data:", address)):
            problems.append(one.url)

    def console(message: Any) -> None:
        if not any(part in message.text for part in allowed):
            problems.append(message.text)

    context = browser.new_context(viewport={"width": 900, "height": 800})
    page = context.new_page()
    page.on("request", request)
    page.on("console", console)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(address)
    page.wait_for_function("() => document.getElementById('words').textContent !== ''")
    yield page
    context.close()
    assert problems == []


def shown(page: Any) -> str:
    """The name of the shown image, once its picture is there."""
    page.wait_for_function("() => document.getElementById('picture').naturalWidth > 0")
    return page.locator("#name").inner_text()


def press(page: Any, key: str) -> None:
    """Press a key, and wait until the page shows another question."""
    before = page.locator("#name").inner_text()
    page.keyboard.press(key)
    page.wait_for_function("name => document.getElementById('name').textContent !== name", arg=before, timeout=5000)


def test_fifty_answers_by_keyboard_with_a_kill_and_a_restart(browser: Any, place: Path) -> None:
    answers, expected = place / "answers.csv", {}
    waits = []
    with asking(place) as (process, address), watched(browser, address, ("ERR_CONNECTION_REFUSED",)) as page:
        for i in range(23):
            name, key = shown(page), "12"[i % 2]
            began = time.perf_counter()
            press(page, key)
            shown(page)
            waits.append(time.perf_counter() - began)
            expected[name] = CLASSES[i % 2]
        waiting = shown(page)
        process.send_signal(signal.SIGKILL)
        process.wait()
        page.keyboard.press("1")
        page.wait_for_function(
            "() => document.getElementById('problem').textContent.includes('Start the same command')"
        )
        assert page.locator("#name").inner_text() == waiting, "an answer that was not kept does not look as if it was"
    assert {line.image: line.answer for line in read_answers(answers).lines} == expected

    with asking(place) as (_, address), watched(browser, address) as page:
        assert shown(page) == waiting, "the same question waits"
        assert " is ahead, " in page.locator("#words").inner_text()
        for i in range(27):
            name = shown(page)
            press(page, "12"[i % 2])
            expected[name] = CLASSES[i % 2]
        undone = shown(page)
        press(page, "1")
        press(page, "Backspace")
        assert shown(page) == undone
        press(page, "2")
        expected[undone] = "dog"
        skipped = shown(page)
        press(page, " ")
        last = shown(page)
        press(page, "1")
        press(page, "u")
        assert shown(page) == last
    lines = read_answers(answers).lines
    assert {line.image: line.answer for line in lines} == {**expected, skipped: ""}
    assert len(expected) == 51
    assert sorted(waits)[len(waits) // 2] < 0.5, "half of the waits, browser and all"


def test_it_works_by_mouse_and_shows_names_as_text(browser: Any, place: Path) -> None:
    (place / "answers.csv").unlink(missing_ok=True)
    with asking(place) as (_, address), watched(browser, address) as page:
        button = page.locator("#choices button").first
        assert button.inner_text() == "1 <i>cat</i>"
        assert page.locator("#undo").is_disabled()
        name = shown(page)
        button.click()
        page.wait_for_function("name => document.getElementById('name').textContent !== name", arg=name)
        page.locator("#undo").click()
        page.wait_for_function("name => document.getElementById('name').textContent === name", arg=name)
        assert page.locator("#words").inner_text().startswith("0 answers of at least 5.")
        page.locator("#skip").click()
        page.wait_for_function("name => document.getElementById('name').textContent !== name", arg=name)
        page.set_viewport_size({"width": 390, "height": 700})
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert [line.answer for line in read_answers(place / "answers.csv").lines] == [""]


def test_another_page_cannot_read_or_answer(browser: Any, place: Path) -> None:
    """A page of another origin, which even knows the address, is refused by the server and by the browser."""
    (place / "answers.csv").unlink(missing_ok=True)
    with asking(place) as (_, address):
        with watched(browser, address) as own:
            shown(own)
            press(own, "1")
        context = browser.new_context()
        page = context.new_page()
        page.goto("data:text/html,evil")
        read = "address => fetch(address + 'next').then(() => 'read', () => 'refused')"
        assert page.evaluate(read, address) == "refused"
        send = """address => fetch(address + 'undo', {method: 'POST', mode: 'no-cors', body: '{}'})
            .then((reply) => reply.type, () => 'refused')"""
        assert page.evaluate(send, address) in ("opaque", "refused")
        wrong = page.goto(address.rstrip("/") + "x/")
        assert wrong.status == 403
        context.close()
    assert len(read_answers(place / "answers.csv").lines) == 1, "the answer was not taken back"


def test_ctrl_c_ends_it_although_the_page_is_open_and_says_what_to_do_next(browser: Any, place: Path) -> None:
    with asking(place) as (process, address), watched(browser, address) as page:
        shown(page)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=30)
        assert process.returncode == 0, said
        assert "Traceback" not in said
        assert "sitar choose run0 run1 --images new --answers answers.csv" in said
