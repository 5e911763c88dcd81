"""Images that are looked at once are decoded window by window, into an array that is used again. Nothing is kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from sitar.images.cache import CHUNK, cache_root, new_array, warn_of_narrow, workers_for
from sitar.images.decoder_pool import DecoderPool
from sitar.images.files import Files
from sitar.writing import scratch_folder


def decoded_windows(
    names: Sequence[str],
    files: Files,
    size: tuple[int, int],
    window: int,
    *,
    crop_pct: float | None = None,
    channels: int = 3,
) -> Iterator[tuple[NDArray[np.uint8], dict[int, str]]]:
    """Yield the pixels of `window` images after the other, with the places of the bad ones in it and the reasons.

    An array holds good pixels until the next one is asked for. The pixels of a bad image mean nothing. Images that use
    little of their range are warned of after the last one.
    """
    form = {"size": size, "crop_pct": crop_pct, "channels": channels}
    cache_root().mkdir(parents=True, exist_ok=True)
    with scratch_folder(cache_root(), "window") as folder:
        path, shape = folder / "images.npy", (min(window, len(names)), channels, *size)
        images, narrow, example = new_array(path, shape, np.uint8), 0, ("", "")
        for start in range(0, len(names), window):
            part = names[start : start + window]
            chunks = [list(range(i, min(i + CHUNK, len(part)))) for i in range(0, len(part), CHUNK)]
            bad: dict[int, str] = {}
            with DecoderPool(path, images.offset, files, form, workers_for(len(part))) as pool:
                for decoded in pool.decode(part, chunks):
                    bad |= decoded.bad
                    for place, words in decoded.narrow.items():
                        narrow, example = narrow + 1, example if narrow else (part[place], words)
            yield images[: len(part)], bad
        if narrow:
            warn_of_narrow(narrow, len(names), *example)
