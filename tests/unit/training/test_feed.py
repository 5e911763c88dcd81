"""A thread gathers batches ahead: the same ones, in the same order, and none is left waiting."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from helpers.runs import assert_same_run, run, settings
from sitar.data import rows as rows_module
from sitar.data.rows import Rows
from sitar.training.feed import AHEAD, Feed, needs_feed
from sitar.training.seeding import BLOCK, WINDOW, epoch_order

CPU = torch.device("cpu")
X = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float16)


def test_batches_come_in_their_order() -> None:
    feed, places = Feed(Rows(X, np.arange(49, -1, -1)), CPU), torch.from_numpy(X[::-1].copy())
    for steps in (1, AHEAD, 3 * AHEAD):
        order = torch.randint(0, 50, (steps, 8))
        feed.begin(order)
        for index in order:
            assert torch.equal(feed.next(), places[index])


def test_an_epoch_that_is_given_up_leaves_no_batch_behind() -> None:
    feed, before = Feed(torch.from_numpy(X), CPU), threading.active_count()
    for _ in range(20):
        order = torch.randint(0, 50, (30, 8))
        feed.begin(order)
        assert torch.equal(feed.next(), torch.from_numpy(X)[order[0]])
    assert threading.active_count() <= before + 1


def test_what_lies_on_the_device_needs_no_feed() -> None:
    assert not needs_feed(torch.zeros(2, 2), CPU)
    assert needs_feed(Rows(X, np.arange(50)), CPU)
    assert needs_feed(torch.zeros(2, 2), torch.device("cuda"))


@pytest.mark.parametrize("method", ["sitar", "group_dro", "jtt", "dfr", "vae", "afr"])
def test_a_run_from_a_mapped_file_is_the_run_from_memory(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit: weights, metrics and predictions."""
    from helpers.made_data import MAKERS

    data = MAKERS["features"](tmp_path).model_dump() | {"attribute_column": "site"}
    config = settings(method, data=data, model={"latent_dim": 8}, train={"epochs": 2, "batch_size": 16})
    held = run(config, tmp_path / "held")
    asked: list[Any] = []
    gather = Rows.gather
    monkeypatch.setattr(
        Rows, "gather", lambda self, *a, **k: asked.append(threading.current_thread()) or gather(self, *a, **k)
    )
    monkeypatch.setattr(rows_module, "HELD", 0)
    mapped = run(config, tmp_path / "mapped")
    assert_same_run(mapped, held)
    assert any(thread is not threading.main_thread() for thread in asked)  # the feed was used


def test_blocks_come_together_and_every_sample_once() -> None:
    size = 3 * BLOCK * WINDOW + 77
    options = {"seed": 1, "phase": 0, "epoch": 0, "shuffle": "blocks"}
    order = epoch_order(torch.arange(size), 64, **options).flatten()[:size]  # type: ignore[arg-type]
    assert torch.equal(order.sort().values, torch.arange(size))
    window = order[: BLOCK * WINDOW]
    assert len(torch.unique(window // BLOCK)) <= WINDOW + 1  # whole blocks, but for the last of the data
    assert (window.diff() == 1).float().mean() < 0.01  # and mixed
    assert len(torch.unique(window[:64] // BLOCK)) > 40  # a batch is of many blocks
    assert not torch.equal(order, epoch_order(torch.arange(size), 64, **(options | {"epoch": 1})).flatten()[:size])  # type: ignore[arg-type]
