"""A finished run as a MetricFrame of fairlearn, against our own metrics of groups."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from fairlearn.metrics import selection_rate

from sitar.errors import ConfigError, RunError
from sitar.fairness import group_columns
from sitar.run_folder import RunFolder
from sitar.training.run import train


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A real run on features of two hospitals."""
    path = tmp_path_factory.mktemp("fair")
    random = np.random.default_rng(0)
    y, site = random.integers(0, 2, 400), random.integers(0, 2, 400)
    x = random.normal(size=(400, 6)) + y[:, None] + site[:, None] * np.arange(6)
    arrays = {"x": x, "y": np.array(["ill", "well"])[y], "site": np.array(["north", "south"])[site]}
    np.savez(path / "data.npz", **arrays)
    overrides = [f"data.file={path}/data.npz", "data.attribute_key=site", "train.epochs=2"]
    return train("npz/erm", overrides=overrides, out=path / "run", device="cpu", progress=False)


def test_groups_of_fairlearn_are_ours(finished: RunFolder) -> None:
    frame = finished.to_metricframe()
    ours = finished.result()["splits"]["test"]
    names = ("ill", "well"), ("north", "south")
    assert frame.by_group.index.names == ["label", "site"]
    for name, group in ours["groups"].items():
        label, site = (int(part.partition("=")[2]) for part in name.split(","))
        row = frame.by_group.loc[(names[0][label], names[1][site])]
        assert (row["accuracy"], row["count"]) == (group["accuracy"], group["n"])
    assert frame.overall["accuracy"] == ours["average"]
    assert frame.group_min()["accuracy"] == ours["worst_group"]


def test_metrics_split_and_groups_may_be_chosen(finished: RunFolder) -> None:
    frame = finished.to_metricframe("val", metrics={"rate": selection_rate}, by="site")
    arrays = finished.predictions()
    said = arrays["val/logits"].argmax(1)
    south = arrays["val/group"] % 2 == 1
    assert frame.by_group["rate"]["south"] == said[south].mean()
    assert frame.by_group["rate"]["north"] == said[~south].mean()


def test_what_cannot_be_had_is_said(finished: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RunError, match=r"no split 'tset'\. It has train, test, val"):
        finished.to_metricframe("tset")
    with pytest.raises(RunError, match=r"by=\['age'\] does not name.*label, site"):
        finished.to_metricframe(by=["age"])
    with pytest.raises(RunError, match="keeps no groups of the split 'train'"):
        finished.to_metricframe("train")
    monkeypatch.setitem(sys.modules, "fairlearn.metrics", None)
    with pytest.raises(ConfigError, match=r"sitar\[fairlearn\]"):
        finished.to_metricframe()


def test_names_of_groups_may_hold_anything() -> None:
    columns = group_columns(np.array([1, 0]), ["label=0,a=b,c=0", "label=11,a=b,c=7"], ["x"], {"a=b,c": ["u"]})
    assert columns == {"label": ["11", "x"], "a=b,c": ["7", "u"]}
