"""One flipped bit of a file that sitar has written is named, and the file is never used."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from helpers.bits import damaged, flipped, some_bits
from helpers.runs import Stop, assert_same_run, run, toy, writes
from sitar.config import RunConfig
from sitar.errors import RunError, SitarError
from sitar.run_folder import RunFolder
from sitar.training.checkpoint import load_state

FROZEN = {
    "latent_dim": 4,
    "hidden": 8,
    "encoder": "test_resnet",
    "encoder_weights": "random",
    "freeze_encoder": True,
}
pytestmark = pytest.mark.usefixtures("_toys", "cache")


def stopped(config: RunConfig, path: Path) -> RunFolder:
    """A run that was killed between its checkpoints."""
    folder = RunFolder(path)

    def second_epoch() -> None:
        if folder.metrics_file.exists() and len(folder.metrics()) == 2:
            raise Stop

    with suppress(Stop):
        writes(lambda: run(config, path), before=second_epoch)
    assert folder.state_file.exists()
    assert not folder.is_done
    return folder


def resumed_state(folder: RunFolder) -> object:
    return load_state(folder, folder.state())


READERS: dict[str, Callable[[RunFolder], object]] = {
    "config.yaml": RunFolder.read_config,
    "environment.json": RunFolder.environment,
    "checkpoint/encoder.safetensors": RunFolder.encoder,
    "metrics.jsonl": resumed_state,
}


@pytest.mark.ci
def test_one_flipped_bit_of_an_unfinished_run_is_named_and_never_used(tmp_path: Path) -> None:
    config = toy("erm", model=FROZEN, train={"epochs": 3, "checkpoint_seconds": 0})
    whole, folder = run(config, tmp_path / "whole"), stopped(config, tmp_path / "run")
    for name, reads in READERS.items():
        file = folder.path / name
        reads(folder)
        content = file.read_bytes()
        used = content.splitlines(keepends=True)[0] if name == "metrics.jsonl" else content  # the rest is dropped
        bits = some_bits(used, 40)
        for bit in bits:
            with damaged(file, bit), pytest.raises(RunError, match=f"{re.escape(name)}' is damaged"):
                reads(folder)
        with damaged(file, bits[-9]), pytest.raises(RunError, match=f"{re.escape(name)}' is damaged"):
            run(config, folder.path, resume=True)
    assert_same_run(run(config, folder.path, resume=True), whole)


def test_the_checksums_of_an_unfinished_run_cannot_make_a_damaged_file_sound(tmp_path: Path) -> None:
    config = toy("erm", model=FROZEN, train={"epochs": 3, "checkpoint_seconds": 0})
    folder = stopped(config, tmp_path / "run")
    sound = folder.encoder()
    content = folder.unfinished_file.read_bytes()
    refused = 0
    for bit in some_bits(content, len(content)):
        with damaged(folder.unfinished_file, bit):
            try:
                assert folder.encoder() == sound
            except SitarError as error:
                named = str(error)
                refused += "encoder.safetensors' is damaged" in named and "unfinished" in named
    assert refused > 40  # for most digits of its checksum; without the others, it is no JSON
    folder.unfinished_file.write_bytes(b"")  # the way out that the message names
    assert folder.encoder() == sound


def test_a_run_that_ends_has_the_checksums_of_what_was_written_at_its_start(tmp_path: Path) -> None:
    """What was damaged while it trained is not called sound at its end."""
    config = toy("erm", model=FROZEN, train={"epochs": 3, "checkpoint_seconds": 0})
    folder = stopped(config, tmp_path / "run")
    content = folder.encoder_file.read_bytes()

    def lose_a_bit() -> None:
        if folder.result_file.exists() and not folder.is_done:
            folder.encoder_file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))

    writes(lambda: run(config, folder.path, resume=True), before=lose_a_bit)
    assert folder.is_done
    assert not folder.unfinished_file.exists()
    with pytest.raises(RunError, match=r"encoder\.safetensors' is damaged"):
        folder.encoder()


def test_names_of_trackers_that_are_damaged_are_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create({})
    assert folder.tracker_ids() == {}
    folder.write_tracker_ids({"wandb": "abc"})
    assert folder.tracker_ids() == {"wandb": "abc"}
    assert not caplog.records
    file = folder.trackers / "ids.json"
    for bit in some_bits(file.read_bytes(), 100):
        with damaged(file, bit):
            assert folder.tracker_ids() == {}
    assert "ids.json' is damaged" in caplog.text


def test_a_checkpoint_of_an_earlier_release_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no checksum of the lines that were logged, and its folder none of its files."""
    config = toy("erm", train={"epochs": 3, "checkpoint_seconds": 0})
    whole = run(config, tmp_path / "whole")
    monkeypatch.setattr("sitar.training.loop.save_state", lambda folder, state: _save_without(folder, state, "log"))
    folder = stopped(config, tmp_path / "run")
    folder.unfinished_file.unlink()
    state = load_state(folder, folder.state())
    assert state is not None
    assert "log" not in state
    assert_same_run(run(config, folder.path, resume=True), whole)
    assert set(json.loads(folder.done_file.read_text())["sha256"]) >= {"config.yaml", "environment.json"}


def _save_without(folder: RunFolder, state: dict[str, object], key: str) -> None:
    from sitar.training.checkpoint import save_state

    save_state(folder, {name: value for name, value in state.items() if name != key})


def test_what_a_disk_has_changed_while_it_was_written_is_not_called_sound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checksum is that of the content, and not of what is read back. So it does not matter how large a file is."""
    folder = RunFolder(tmp_path / "run")
    folder.create({})

    def lossy(file: Path, content: bytes) -> None:
        file.write_bytes(flipped(content, 8 * len(content) - 100) if file.name in lost else content)

    monkeypatch.setattr("sitar.run_folder.checksums.write_atomic", lossy)
    lost = ("predictions.npz", "result.json")
    folder.finish({"version": 1}, {"val/y": np.arange(5)})
    for reads, name in ((folder.predictions, "predictions.npz"), (folder.result, "result.json")):
        with pytest.raises(RunError, match=f"{re.escape(name)}' is damaged"):
            reads()
