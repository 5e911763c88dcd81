"""How long checksums of a cache of features take: one for each row, and one for each block of rows.

    python benchmarks/checksums.py [--rows N] [--width D]

The array is made up, and mapped from a file, as a cache is. All rows are read once, in batches in random order.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from sitar.integrity import BlockSummer, BlockSums, RowSums, row_sums

BATCH = 4096


def seconds_to_read(array: np.ndarray, order: np.ndarray, sums: RowSums | BlockSums | None) -> float:
    began = time.perf_counter()
    for start in range(0, len(order), BATCH):
        places = order[start : start + BATCH]
        rows = np.take(array, places, axis=0)
        if sums is not None:
            sums.check(places, rows)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--width", type=int, default=16)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "features.npy")
        np.save(file, np.random.default_rng(0).normal(size=(options.rows, options.width)).astype(np.float16))
        array = np.load(file, mmap_mode="r")
        order = np.random.default_rng(1).permutation(options.rows)
        began = time.perf_counter()
        of_rows = row_sums(array)
        made_rows, began = time.perf_counter() - began, time.perf_counter()
        summer = BlockSummer()
        summer.add(array)
        of_blocks = summer.sums()
        made_blocks = time.perf_counter() - began
        plain = seconds_to_read(np.asarray(array), order, None)
        rows = seconds_to_read(np.asarray(array), order, RowSums(of_rows, file)) - plain
        blocks = seconds_to_read(np.asarray(array), order, BlockSums(of_blocks, np.asarray(array), file)) - plain
    print(f"{options.rows:,} rows of {options.width} float16; read without checksums in {plain:.2f} s")
    print(f"a checksum for each row:   {made_rows:.2f} s to make, {rows:.2f} s to compare, {of_rows.nbytes:,} bytes")
    print(
        f"a checksum for each block: {made_blocks:.2f} s to make, {blocks:.2f} s to compare, {of_blocks.nbytes:,} bytes"
    )


if __name__ == "__main__":
    main()
