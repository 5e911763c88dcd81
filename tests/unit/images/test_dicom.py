"""DICOM windows and look-up tables, pixel for pixel against pydicom."""

from __future__ import annotations

import io
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from pydicom.data import get_testdata_file
from pydicom.dataset import Dataset
from pydicom.pixels.processing import apply_modality_lut, apply_voi_lut

from sitar.images.bit_depth import BadImageError
from sitar.images.decode import decode
from sitar.images.dicom import STRIP, _has_window, read_dicom

from .test_decode import dicom

RANDOM = np.random.default_rng(3)
SIZE = (40, 30)
SIGNED = RANDOM.integers(-1200, 3000, SIZE).astype(np.int16)
TWELVE = RANDOM.integers(0, 4096, SIZE).astype(np.uint16)
RESCALE = {"RescaleSlope": 1.5, "RescaleIntercept": -1024}
MORE = 10**8


def lut(entries: np.ndarray, first: int, depth: int) -> Dataset:
    item = Dataset()
    item.LUTDescriptor = [len(entries), first, depth]
    item.add_new(0x00283006, "US", [int(value) for value in entries])
    return item


def referee(content: bytes, low: float, high: float) -> np.ndarray:
    """What pydicom shows, brought from its range to eight bits, and turned where zero is white."""
    file = pydicom.dcmread(io.BytesIO(content))
    with np.errstate(over="ignore"):  # of a steep sigmoid
        values = apply_voi_lut(apply_modality_lut(file.pixel_array, file), file)
    shown = np.rint(255 * np.clip((values.astype(np.float64) - low) / (high - low), 0, 1)).astype(np.uint8)
    return 255 - shown if file.PhotometricInterpretation == "MONOCHROME1" else shown


def ours(content: bytes) -> np.ndarray:
    return np.asarray(read_dicom(content, MORE))


RANGES = {  # of pydicom's values: what can be stored, rescaled
    "signed": (SIGNED, {}, -(2.0**15), 2.0**15 - 1),
    "signed, rescaled": (SIGNED, RESCALE, -(2.0**15) * 1.5 - 1024, (2.0**15 - 1) * 1.5 - 1024),
    "twelve bits": (TWELVE, {"BitsStored": 12, "HighBit": 11}, 0.0, 4095.0),
}


@pytest.mark.parametrize("kind", ["MONOCHROME1", "MONOCHROME2"])
@pytest.mark.parametrize("function", [None, "LINEAR", "LINEAR_EXACT", "SIGMOID"])
@pytest.mark.parametrize("window", [(40, 400), ([600, 40], [2000, 400]), (300.5, 1), (-100, 5000)])
@pytest.mark.parametrize("stored", RANGES)
def test_windows_are_those_of_pydicom(stored: str, window: tuple[Any, Any], function: str | None, kind: str) -> None:
    pixels, elements, low, high = RANGES[stored]
    elements = {**elements, "WindowCenter": window[0], "WindowWidth": window[1], "PhotometricInterpretation": kind}
    content = dicom(pixels, **elements, **({} if function is None else {"VOILUTFunction": function}))
    expected = referee(content, low, high)
    np.testing.assert_array_equal(ours(content), expected)
    assert len(np.unique(expected)) > 1  # the window shows something
    np.testing.assert_array_equal(decode(content, SIZE, channels=1)[0], expected)


def test_a_slope_below_zero_does_not_turn_the_image() -> None:
    """The brightest is what has the highest value, and not what is stored as the largest number."""
    falling = {"RescaleSlope": -1, "RescaleIntercept": 4095, "WindowCenter": 2048, "WindowWidth": 4096}
    rising = {"WindowCenter": 2048, "WindowWidth": 4096}
    bits = {"BitsStored": 12, "HighBit": 11}
    one = ours(dicom(TWELVE, **falling, **bits)).astype(int)
    other = ours(dicom(4095 - TWELVE, **rising, **bits)).astype(int)
    assert abs(one - other).max() <= 1


@pytest.mark.parametrize("depth", [8, 12, 16])
def test_voi_luts_are_those_of_pydicom(depth: int) -> None:
    entries = np.sort(RANDOM.integers(0, 2**depth, 4096))
    entries[-1] = 2**depth - 1
    elements = {
        "BitsStored": 12,
        "HighBit": 11,
        "VOILUTSequence": [lut(entries, 0, depth), lut(entries[::-1], 0, depth)],
    }
    content = dicom(TWELVE, **elements)
    if depth != 8:  # pydicom looks up only eight bits of the value then
        np.testing.assert_array_equal(ours(content), referee(content, 0, 2**depth - 1))
    expected = np.rint(255 * entries[TWELVE] / (2**depth - 1)).astype(np.uint8)  # the first table
    np.testing.assert_array_equal(ours(content), expected)


def test_a_voi_lut_comes_before_a_window() -> None:
    """As pydicom decides where a file has both."""
    entries = RANDOM.integers(0, 2**12, 4096)
    both = {"VOILUTSequence": [lut(entries, 0, 12)], "WindowCenter": 40, "WindowWidth": 400}
    content = dicom(TWELVE, BitsStored=12, HighBit=11, **both)
    np.testing.assert_array_equal(ours(content), np.rint(255 * entries[TWELVE] / 4095).astype(np.uint8))


def test_a_modality_lut_comes_first() -> None:
    entries = RANDOM.integers(0, 2**16, 4096)
    elements = {"BitsStored": 12, "HighBit": 11, "ModalityLUTSequence": [lut(entries, 0, 16)]}
    window = {"WindowCenter": 30000, "WindowWidth": 20000}
    content = dicom(TWELVE, **elements, **window)
    np.testing.assert_array_equal(ours(content), referee(content, 0, 65535))
    values = entries[TWELVE].astype(float)
    plain = np.rint(255 * (values - values.min()) / (values.max() - values.min())).astype(np.uint8)
    np.testing.assert_array_equal(ours(dicom(TWELVE, **elements)), plain)


@pytest.mark.parametrize("window", [{"WindowCenter": None, "WindowWidth": None}, {"WindowCenter": 40}])
def test_a_window_that_is_not_complete_is_none(window: dict[str, Any]) -> None:
    expected = np.rint(255 * (SIGNED - float(SIGNED.min())) / (float(SIGNED.max()) - SIGNED.min())).astype(np.uint8)
    np.testing.assert_array_equal(ours(dicom(SIGNED, **window)), expected)


@pytest.mark.parametrize(
    ("elements", "reason"),
    [
        ({"WindowCenter": 40, "WindowWidth": 0}, "Window Width must be greater"),
        ({"WindowCenter": 40, "WindowWidth": 0, "VOILUTFunction": "SIGMOID"}, "Window Width must be greater"),
        ({"WindowCenter": 40, "WindowWidth": 9, "VOILUTFunction": "CUBIC"}, "Unsupported .*'CUBIC'"),
        ({"VOILUTSequence": [lut(np.zeros(9), 0, 9)]}, "'9' bits"),
    ],
)
def test_windows_that_mean_nothing_are_refused(elements: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadImageError, match=reason):
        decode(dicom(TWELVE, **elements), SIZE)


@pytest.mark.parametrize("name", ["MR_small.dcm", "MR_small_RLE.dcm", "MR_small_bigendian.dcm", "CT_small.dcm"])
def test_real_files_are_shown_as_pydicom_shows_them(name: str) -> None:
    """Files of real scanners that come with pydicom. The last one has no window and spans its own values."""
    path = get_testdata_file(name, download=False)
    assert path is not None
    file = pydicom.dcmread(path)
    values = apply_modality_lut(file.pixel_array, file)
    low, high = (-(2.0**15), 2.0**15 - 1) if "WindowWidth" in file else (float(values.min()), float(values.max()))
    content = Path(path).read_bytes()
    np.testing.assert_array_equal(ours(content), referee(content, low, high))
    assert len(np.unique(ours(content))) > 100


def test_memory_is_that_of_strips() -> None:
    pixels = np.zeros((4 * STRIP // 1024, 1024), np.uint16)
    pixels[::7] = 4000
    content = dicom(pixels, WindowCenter=2000, WindowWidth=4000)
    read_dicom(content, MORE)
    tracemalloc.start()
    read_dicom(content, MORE)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * pixels.nbytes + 8 * 8 * STRIP  # the file, its pixels, the result, and copies of one strip


@pytest.mark.parametrize(("name", "value"), [("WindowCenter", "nan"), ("WindowWidth", "nan"), ("WindowCenter", "inf")])
def test_a_window_that_is_no_number_is_refused(name: str, value: str) -> None:
    content = dicom(TWELVE, WindowCenter=40, WindowWidth=400)
    file = pydicom.dcmread(io.BytesIO(content))
    with pydicom.config.disable_value_validation():
        file[name]._value = pydicom.valuerep.DSfloat(float(value))
        with pytest.raises(BadImageError, match=f"{name} is {value}"):
            _has_window(file)


def test_a_small_file_that_unpacks_to_much_is_refused_with_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    file = pydicom.dcmread(io.BytesIO(dicom(np.zeros((2000, 2000), np.uint16))))
    file.file_meta.TransferSyntaxUID = pydicom.uid.DeflatedExplicitVRLittleEndian
    packed = io.BytesIO()
    file.save_as(packed, enforce_file_format=True)
    assert len(packed.getvalue()) < 20_000
    assert not ours(packed.getvalue()).any()
    monkeypatch.setattr("sitar.images.dicom.MOST_UNPACKED", 10**6)
    with pytest.raises(BadImageError, match="unpacks to more than 1,000,000 bytes"):
        ours(packed.getvalue())
    lied = bytearray(packed.getvalue())
    lied[140:144] = (10**9).to_bytes(4, "little")  # of the head, which pydicom finds the end of by itself
    with pytest.raises(BadImageError, match="unpacks to more than 1,000,000 bytes"):
        ours(bytes(lied))
