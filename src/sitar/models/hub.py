"""Find the pretrained weights of a network on the hub. If they cannot be fetched, this is said within seconds."""

from __future__ import annotations

import os
import threading
from queue import Empty, SimpleQueue
from typing import Any

from sitar.errors import ConfigError
from sitar.registry import did_you_mean

PATIENCE = 2.0  # seconds for the hub's first answer; HF_HUB_ETAG_TIMEOUT sets another number
FILES = ("model.safetensors", "pytorch_model.bin")  # as timm looks for them


def described_by_timm(name: str) -> Any:
    """Return what timm says of a network and its weights. A name that does not exist is refused."""
    import timm
    from timm.models import get_pretrained_cfg

    network, _, tag = name.partition(".")
    if not timm.is_model(network):
        raise ConfigError(
            f"model.encoder {name!r} is no network of timm.{did_you_mean(name, timm.list_models(pretrained=True))}"
        )
    try:
        return get_pretrained_cfg(name)
    except RuntimeError as error:
        known = timm.list_models(f"{network}.*", pretrained=True)
        raise ConfigError(
            f"model.encoder {name!r}: timm has no weights {tag!r} of {network}. It has {', '.join(known) or 'none'}."
        ) from error


def weights_on_this_machine(name: str) -> str | None:
    """Return the file of a network's weights that was downloaded before.

    None: it is still to be fetched, and the hub answers. A hub that does not answer is an error. Its own client would
    try again for most of a minute, and log every attempt.
    """
    from huggingface_hub import hf_hub_url, try_to_load_from_cache

    described = described_by_timm(name)
    repository = described.hf_hub_id
    if not repository:
        return None  # timm has no weights of this network, or has them from elsewhere: it says so at once
    repository = repository if "/" in repository else f"timm/{repository}"
    files = (described.hf_hub_filename,) if described.hf_hub_filename else FILES
    for file in files:
        if isinstance(found := try_to_load_from_cache(repository, file), str):
            return found
    if problem := _problem(hf_hub_url(repository, files[0])):
        raise cannot_be_had(name, problem, repository)
    return None


def cannot_be_had(name: str, problem: str, repository: str | None = None) -> ConfigError:
    page = f" (from https://huggingface.co/{repository} on another machine)" if repository else ""
    return ConfigError(
        f"The weights of {name!r} cannot be had: {problem.rstrip('.')}. Check the network, or download them{page} and "
        "name the file: --set model.encoder_weights=FILE."
    )


def _problem(url: str) -> str | None:
    """Ask for the header of a file once, and say what is wrong. None: the hub answers.

    The look-up of a name knows no time limit, so another thread does the asking. It is left behind if it hangs.
    """
    seconds = _patience()
    answer: SimpleQueue[str | None] = SimpleQueue()
    threading.Thread(target=lambda: answer.put(_ask(url, seconds)), daemon=True).start()
    host = "/".join(url.split("/")[:3])
    try:
        problem = answer.get(timeout=seconds)
    except Empty:
        problem = f"no answer in {seconds:g} seconds; HF_HUB_ETAG_TIMEOUT=30 in the environment waits longer"
    return problem and f"{host} cannot be reached ({problem})"


def _ask(url: str, seconds: float) -> str | None:
    from huggingface_hub import get_session

    try:
        response: Any = get_session().head(url, timeout=seconds)
    except Exception as error:  # it is not specified what the hub's client raises if there is no network
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    is_overloaded = response.status_code == 429 or response.status_code >= 500  # what the client would try again
    return f"status {response.status_code}" if is_overloaded else None


def _patience() -> float:
    """Return how many seconds to wait. What is no time that one can wait counts as not said."""
    try:
        seconds = float(os.environ["HF_HUB_ETAG_TIMEOUT"])
    except (KeyError, ValueError):
        return PATIENCE
    return seconds if 0 <= seconds <= threading.TIMEOUT_MAX else PATIENCE
