"""A small JPEG file may take very long, and a JPEG 2000 file much memory. Here are the bounds of both."""

from __future__ import annotations

import re

from sitar.images.bit_depth import BadImageError

MOST_JPEG2000 = 25_000_000  # pixels: the decoder takes thirty bytes for each
MOST_SCANS = 500  # of a JPEG file: each goes over the whole image, and an empty one has a dozen bytes
MARKER = re.compile(rb"\xff+([^\x00\x01\xd0-\xd8\xff])")  # of a part of a JPEG file that has a length
SCAN, END = b"\xda", b"\xd9"


def check_scans(data: bytes) -> None:
    """Refuse a JPEG file of very many scans. Progressive files have about ten, and plain ones at most four."""
    if data.count(b"\xff" + SCAN) <= MOST_SCANS:  # also within texts and in what follows the image, such as a video
        return
    scans = place = 0
    while (found := MARKER.search(data, place)) and found[1] != END and scans <= MOST_SCANS:
        scans += found[1] == SCAN
        place = found.end() + int.from_bytes(data[found.end() : found.end() + 2], "big")
    if scans > MOST_SCANS:
        raise BadImageError(f"a JPEG file of more than {MOST_SCANS:,} scans")
