"""Turn valid inputs into wrong ones: bytes that were damaged, and content that is well formed and makes no sense."""

from __future__ import annotations

import copy
import csv
import io
import json
import math
import struct
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    127,
    128,
    255,
    256,
    65_535,
    65_536,
    2**31 - 1,
    2**31,
    2**32,
    2**53 + 1,
    2**63,
    2**64,
    -(2**63),
)
WORDS = (
    "", " ", "nan", "null", "true", "[benign]", "[/x]", "[red]", "\x1b[31mred\x1b[0m", "<script>alert(1)</script>",
    "../../etc/passwd", "/dev/zero", "~nosuchuser/x", "a" * 5000, "\u202etxt", "\x00", "\ud83d\ude00", "café",
    "0x1F", "1e999",
    "1_000", "%s%n", "{{7*7}}", "${HOME}", "label=0", "label=9,place=9", "val", "train", "made/erm", "=1+1",
    "\n\n", "\r",
    "é" * 300, "None", "1,2", "-", "--help", "\ufeff", "\ud800", "sitar", "a.yaml", "2026-01-01", "12:30:00",
)  # fmt: skip
MARKS = (
    b"\x00",
    b"\xff",
    b"\n",
    b"\r",
    b'"',
    b",",
    b"{",
    b"[",
    b"}",
    b"]",
    b":",
    b"&a ",
    b"*a ",
    b"!!",
    b"\xef\xbb\xbf",
    b"-",
    b"%",
)


def damaged(random: Random, content: bytes, times: int | None = None) -> bytes:
    """Return bytes with a few places changed, cut, doubled or filled."""
    data = bytearray(content)
    for _ in range(times or random.choice((1, 1, 1, 2, 4, 16))):
        place = random.randrange(len(data) + 1)
        end = min(len(data), place + random.choice((1, 2, 4, 8, 32, 256)))
        match random.randrange(10):
            case 0 if data:
                data[place % len(data)] ^= 1 << random.randrange(8)
            case 1 if data:
                data[place % len(data)] = random.randrange(256)
            case 2:
                data[place:place] = random.randbytes(random.choice((1, 2, 4, 16, 64)))
            case 3:
                del data[place:end]
            case 4:
                del data[place:]
            case 5:
                data[place:place] = data[place:end] * random.choice((1, 2, 50))
            case 6:
                data[place:place] = random.choice(MARKS) * random.choice((1, 1, 2, 500))
            case 7:
                code = random.choice(("<H", ">H", "<I", ">I", "<Q", ">Q"))
                number = struct.pack(code, random.choice(NUMBERS) % 256 ** struct.calcsize(code))
                data[place : place + len(number)] = number
            case 8:
                data[place:end] = bytes(end - place)
            case _:
                other = random.randrange(len(data) + 1)
                data[place:end] = data[other : other + end - place]
    return bytes(data)


def strange(random: Random, depth: int = 0) -> Any:  # noqa: PLR0911
    """Return a value that stands where another kind of value, or a sensible one, is expected."""
    match random.randrange(12):
        case 0:
            return None
        case 1:
            return random.choice((True, False))
        case 2:
            return random.choice(NUMBERS)
        case 3:
            return random.choice((0.0, -0.5, 0.5, 1.5, 1e-308, 1e308, -1e308, math.pi, math.nan, math.inf, -math.inf))
        case 4 | 5:
            return random.choice(WORDS)
        case 6 if depth < 3:
            return [strange(random, depth + 1) for _ in range(random.choice((0, 1, 2, 3, 40)))]
        case 7 if depth < 3:
            return {random.choice(WORDS): strange(random, depth + 1) for _ in range(random.choice((0, 1, 2, 5)))}
        case 8:
            return [[[[]]]]
        case 9:
            return "".join(chr(random.randrange(32, 0x2FFF)) for _ in range(random.randrange(12)))
        case 10:
            return random.randrange(-10, 10)
        case _:
            return random.uniform(-2, 2)


def changed(random: Random, tree: Any, times: int | None = None) -> Any:
    """Return a copy of nested lists and mappings in which a few values, keys or lengths are others."""
    tree = copy.deepcopy(tree)
    for _ in range(times or random.choice((1, 1, 1, 2, 3, 8))):
        places = list(_places(tree))
        if not places:
            return strange(random)
        holder, key = random.choice(places)
        match random.randrange(8):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, dict):
                holder[random.choice((*WORDS, f"{key}s"))] = holder.pop(key)
            case 2:
                other, at = random.choice(places)
                holder[key] = copy.deepcopy(other.get(at) if isinstance(other, dict) else [*other, None][at])
            case 3 if isinstance(holder, list):
                holder.insert(key, copy.deepcopy(holder[key]))
            case 4 if isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
                holder[key] = random.choice(
                    (-holder[key], holder[key] * 1000, holder[key] + 1, float(holder[key]), str(holder[key]))
                )
            case 5 if isinstance(holder[key], list | dict):
                holder[key] = list(holder[key]) if isinstance(holder[key], dict) else dict(enumerate(holder[key]))
            case _:
                holder[key] = strange(random)
    return tree


def _places(tree: Any, limit: int = 400) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    waiting = [tree]
    while waiting and len(found) < limit:
        holder = waiting.pop(0)
        inner = holder.items() if isinstance(holder, dict) else enumerate(holder) if isinstance(holder, list) else ()
        for key, value in inner:
            found.append((holder, key))
            if isinstance(value, dict | list):
                waiting.append(value)
    return found


def wrong_json(random: Random, content: bytes) -> bytes:
    """Return well-formed JSON, now and then nested too deep, or not JSON's own in NaN, whose values are wrong."""
    if random.random() < 0.02:
        return b"[" * 20_000 + b"]" * 20_000
    return json.dumps(changed(random, json.loads(content))).encode("utf-8", "surrogatepass")


def wrong_lines(random: Random, content: bytes) -> bytes:
    """As `wrong_json`, for JSON line by line."""
    lines = changed(random, [json.loads(line) for line in content.splitlines()])
    return b"".join(json.dumps(line).encode() + b"\n" for line in (lines if isinstance(lines, list) else [lines]))


def wrong_yaml(random: Random, content: bytes) -> bytes:
    """Return YAML whose values are wrong. Anchors, tags and merges are put in now and then."""
    import yaml

    text = yaml.dump(changed(random, yaml.safe_load(content)), sort_keys=False, allow_unicode=True)
    if random.random() < 0.15:
        extra = random.choice((
            "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n", "<<: {seed: 1}\n", "? [1, 2]\n: 3\n",
            "seed: !!python/name:os.system\n",
            "x: !!binary '='\n", "x: !!timestamp 2026-99-99\n", "x: !!int ''\n", "x: &x\n  y: *x\n", "x: 0b\n",
            "x: 1:99:61\n",
            "&a a: *a\n", "x: !!set {a, b}\n", "x: " + "[" * 2000 + "]" * 2000 + "\n", "---\nb: 1\n",
            "%YAML 9.9\n---\n",
            "x: !!omap [a: 1]\n", "x: 2026-01-01 99:99:99\n", "x: !!float nan\n", "x: 1e400\n",
            "data: &d {name: npz, a: *d}\n",
        ))  # fmt: skip
        text = extra + text if random.random() < 0.5 else text + extra
    return text.encode("utf-8", "surrogatepass")


def wrong_csv(random: Random, content: bytes) -> bytes:
    """Return a CSV file whose cells, lines or columns are wrong."""
    rows = list(csv.reader(io.StringIO(content.decode(), newline="")))
    rows = changed(random, rows)
    rows = rows if isinstance(rows, list) else [rows]
    buffer = io.StringIO(newline="")
    writer = csv.writer(
        buffer, random.choice(("excel", "excel", "excel", "excel-tab", "unix")), delimiter=random.choice(",,,,;")
    )
    for row in rows:
        cells = row if isinstance(row, list) else list(row.values()) if isinstance(row, dict) else [row]
        writer.writerow([str(cell).replace("\x00", "") for cell in cells])
    encoding = random.choice(("utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16", "latin-1"))
    return buffer.getvalue().encode(encoding, "surrogatepass" if encoding.startswith("utf") else "replace")


def wrong_array(random: Random, array: Any) -> Any:  # noqa: PLR0911, PLR0912
    """Return an array of another shape, type or content."""
    array = np.asarray(array)
    if array.dtype.names or array.dtype == object:
        return array
    with np.errstate(all="ignore"):
        match random.randrange(12):
            case 0:
                kinds = ("f2", "f4", "f8", "i1", "u1", "i8", "U", "?", "c16", ">i4", ">f8")
                return array.astype("S3" if array.dtype.kind in "US" else random.choice(kinds))
            case 1:
                return array[: random.randrange(len(array) + 1)] if array.ndim else array
            case 2:
                return array.reshape(-1)
            case 3:
                return array.T
            case 4:
                return array[None]
            case 5:
                return np.full(array.shape, random.choice((0, -1, 99, 2**40, math.nan, math.inf, 1e300)))
            case 6:
                return np.zeros(random.choice(((), (0,), (0, 3), (3, 0), (1,), (2, 2, 2, 2, 2))), array.dtype)
            case 7:
                return np.array(["a", "bb", ""])[np.arange(array.size).reshape(array.shape) % 3]
            case 8 if array.dtype.kind in "iuf" and array.size:
                other = array.copy()
                other.flat[random.randrange(array.size)] = (
                    random.choice((0, 1, 5, 100)) if array.dtype.kind != "f" else math.nan
                )
                return other
            case 9:
                return np.array([None, {"a": 1}], dtype=object)
            case 10:
                return np.repeat(array, 2, axis=random.randrange(array.ndim)) if array.ndim else array
            case _:
                return np.zeros(3, [("a", "i4"), ("b", "f8")])


def wrong_npz(random: Random, content: bytes) -> bytes:
    """Return an .npz file with arrays of other names, shapes, types or values."""
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        arrays: dict[str, Any] = dict(file)
    for _ in range(random.choice((1, 1, 2, 4))):
        name = random.choice(sorted(arrays) or ["x"])
        match random.randrange(10):
            case 0:
                arrays.pop(name, None)
            case 1:
                arrays[random.choice(("x", "y", "test/logits", "é", "..", "a/b", name + "s"))] = arrays.pop(
                    name, np.zeros(2)
                )
            case _:
                arrays[name] = wrong_array(random, arrays.get(name, np.zeros(2)))
    buffer = io.BytesIO()
    save: Callable[..., None] = random.choice((np.savez, np.savez_compressed))
    save(buffer, **arrays)
    whole = buffer.getvalue()
    if random.random() < 0.1:  # a flag or a method of compression that nobody has, and sizes that lie
        place = whole.find(b"PK\x01\x02") + random.choice((8, 9, 10, 11, 20, 21, 22, 23, 24, 25, 26, 27))
        whole = whole[:place] + bytes([random.randrange(256)]) + whole[place + 1 :]
    return whole
