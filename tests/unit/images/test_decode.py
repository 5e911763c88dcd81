"""Every kind of image file, with the pixels that must come out, and what is said of those that cannot be used."""

from __future__ import annotations

import base64
import io
import os
import re
import socket
import struct
import sys
import time
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import Image
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.uid import UID, ExplicitVRLittleEndian, JPEGLSLossless, SecondaryCaptureImageStorage, generate_uid

from sitar.data import load_data
from sitar.data.own_data.folder import Folder, FolderConfig
from sitar.errors import DataError
from sitar.images.bit_depth import BadImageError, to_eight_bits
from sitar.images.cache import cached_images
from sitar.images.decode import decode, decode_bytes, to_rgb, upright
from sitar.images.decoder_pool import DecoderPool
from sitar.images.files import Files

pytestmark = pytest.mark.usefixtures("cache")

RANDOM = np.random.default_rng(7)
SIZE = (12, 10)
GRAY = RANDOM.integers(0, 256, SIZE, dtype=np.uint8)
RGB = RANDOM.integers(0, 256, (*SIZE, 3), dtype=np.uint8)
DEEP = RANDOM.integers(0, 65536, SIZE, dtype=np.uint16)
UNIT = RANDOM.random(SIZE, dtype=np.float32)


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def of(pixels: np.ndarray, kind: str = "PNG", mode: str | None = None, **options: Any) -> bytes:
    image = Image.fromarray(pixels)
    return saved(image if mode is None else image.convert(mode), kind, **options)


def pillow(data: bytes) -> np.ndarray:
    """What Pillow decodes, for kinds that lose something on the way in."""
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB"))


def palette() -> Image.Image:
    image = Image.fromarray(GRAY % 4).convert("P")
    image.putdata((GRAY % 4).ravel().tolist())
    image.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120])
    return image


COLORS = np.array([[10, 20, 30], [40, 50, 60], [70, 80, 90], [100, 110, 120]], dtype=np.uint8)
THREE = np.stack([GRAY] * 3, axis=-1)
CMYK = of(RGB, "TIFF", "CMYK")
JPEG = of(RGB, "JPEG", quality=95)
PROGRESSIVE = of(RGB, "JPEG", quality=95, progressive=True)
ANIMATION = saved(
    Image.fromarray(np.zeros(SIZE, np.uint8)), "GIF", save_all=True,
    append_images=[Image.fromarray(np.full(SIZE, 255, np.uint8))],
)  # fmt: skip

KINDS: dict[str, tuple[bytes, np.ndarray]] = {
    "gray": (of(GRAY), THREE),
    "one bit": (of(GRAY > 99), np.where(THREE > 99, 255, 0)),
    "palette": (saved(palette(), "PNG"), COLORS[GRAY % 4]),
    "palette with a transparent colour": (
        saved(palette(), "PNG", transparency=2),
        np.where((GRAY % 4 == 2)[..., None], 0, COLORS[GRAY % 4]),
    ),
    "alpha": (
        of(np.dstack([RGB, np.full(SIZE, 51, np.uint8)])),
        np.rint(RGB * 0.2),
    ),
    "gray with alpha": (
        of(np.dstack([GRAY, np.where(GRAY > 99, 255, 0).astype(np.uint8)])),
        np.where(THREE > 99, THREE, 0),
    ),
    "cmyk": (CMYK, pillow(CMYK)),
    "sixteen bits, PNG": (of(DEEP), np.rint(np.stack([DEEP] * 3, -1) / 257)),
    "sixteen bits, TIFF": (of(DEEP, "TIFF"), np.rint(np.stack([DEEP] * 3, -1) / 257)),
    "sixteen bits, big-endian": (saved(Image.frombytes("I;16B", SIZE[::-1], DEEP.astype(">u2").tobytes()), "TIFF"),
                                 np.rint(np.stack([DEEP] * 3, -1) / 257)),
    "integers of 32 bits": (of(DEEP.astype(np.int32), "TIFF"), np.rint(np.stack([DEEP] * 3, -1) / 257)),
    "floats": (of(UNIT, "TIFF"), np.rint(np.stack([UNIT] * 3, -1) * 255)),
    "progressive JPEG": (PROGRESSIVE, pillow(PROGRESSIVE)),
    "animation": (ANIMATION, np.zeros((*SIZE, 3))),
    "BMP": (of(RGB, "BMP"), RGB),
    "WebP": (of(RGB, "WEBP", lossless=True), RGB),
    "PPM": (of(RGB, "PPM"), RGB),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_image_has_its_pixels(kind: str) -> None:
    data, expected = KINDS[kind]
    np.testing.assert_array_equal(decode(data, SIZE), expected.transpose(2, 0, 1))


def test_progressive_and_plain_jpeg_hold_the_same() -> None:
    np.testing.assert_array_equal(decode(PROGRESSIVE, SIZE), decode(JPEG, SIZE))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_camera_held_any_way(kind: str, orientation: int) -> None:
    """One bright corner of a dark image, to where EXIF says that it belongs."""
    corner = np.zeros((16, 24), dtype=np.uint8)
    corner[:8, :8] = 255
    exif = Image.Exif()
    exif[0x0112] = orientation
    pixels = decode(of(corner, kind, "RGB", exif=exif), (24, 24))[0] > 127
    where = {1: "tl", 2: "tr", 3: "br", 4: "bl", 5: "tl", 6: "tr", 7: "br", 8: "bl"}[orientation]
    rows = slice(0, 8) if where[0] == "t" else slice(16, 24)
    columns = slice(0, 8) if where[1] == "l" else slice(16, 24)
    assert pixels[rows, columns][2:6, 2:6].all()
    assert pixels.sum() < 200


@pytest.mark.parametrize("kind", ["four channels", "pages", "planes", "white is zero"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_stacks_are_turned_as_pictures_are(kind: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    expected = decode(of(RGB, "PNG", exif=exif), (8, 8))
    tag, rgba = [(0x0112, "H", 1, orientation, True)], np.dstack([RGB, RGB[..., :1]])
    deep = RGB.transpose(2, 0, 1).astype(np.uint16) * 257
    if kind == "four channels":
        data = tiff(rgba, photometric="rgb", extrasamples=["unassalpha"], extratags=tag)
        expected = np.concatenate([expected, expected[:1]])
    elif kind == "pages":
        data = tiff(RGB.transpose(2, 0, 1), photometric="minisblack", extratags=tag)
    elif kind == "planes":
        data = tiff(deep, photometric="rgb", planarconfig="separate", extratags=tag)
    else:
        data, expected = tiff(65535 - deep[0], photometric="miniswhite", extratags=tag), expected[:1]
    np.testing.assert_array_equal(decode(data, (8, 8), channels=len(expected)), expected)


def test_gray_is_one_channel() -> None:
    np.testing.assert_array_equal(decode(of(GRAY), SIZE, channels=1), GRAY[None])
    np.testing.assert_array_equal(decode(of(DEEP), SIZE, channels=1), np.rint(DEEP / 257)[None])
    expected = np.asarray(Image.fromarray(RGB).convert("L"))
    np.testing.assert_array_equal(decode(of(RGB), SIZE, channels=1), expected[None])


def tiff(pixels: np.ndarray, **options: Any) -> bytes:
    buffer = io.BytesIO()
    tifffile.imwrite(buffer, pixels, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("channels", [2, 4, 5, 7, 16, 20])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("form", ["interleaved", "planar", "pages", "big", "zlib"])
def test_stacks_keep_their_channels(channels: int, dtype: type, form: str) -> None:
    planes = RANDOM.integers(0, np.iinfo(dtype).max + 1, (channels, *SIZE), dtype=dtype)
    last = np.moveaxis(planes, 0, -1)
    data = {
        "interleaved": lambda: tiff(last, photometric="minisblack", planarconfig="contig"),
        "planar": lambda: tiff(planes, photometric="minisblack", planarconfig="separate"),
        "pages": lambda: tiff(planes, photometric="minisblack"),
        "big": lambda: tiff(planes, photometric="minisblack", bigtiff=True),
        "zlib": lambda: tiff(planes, photometric="minisblack", compression="zlib"),
    }[form]()
    expected = planes if dtype == np.uint8 else np.rint(planes / 257)
    np.testing.assert_array_equal(decode(data, SIZE, channels=channels), expected)


def retagged(data: bytes, order: str, old: int, new: int) -> bytes:
    """The file with the number of a tag of one short integer changed."""
    (there,) = re.finditer(re.escape(struct.pack(f"{order}HHI", old, 3, 1)), data)
    return data[: there.start()] + struct.pack(f"{order}H", new) + data[there.start() + 2 :]


def eight_bits(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind == "f":
        return np.rint(values.astype(np.float64) * 255)
    return values * 255.0 if values.dtype == bool else values / (1 if values.dtype == np.uint8 else 257)


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("compression", [None, "zlib"])
@pytest.mark.parametrize("planar", ["contig", "separate"])
@pytest.mark.parametrize("layout", [{}, {"rowsperstrip": 5}, {"tile": (16, 16)}], ids=["whole", "strips", "tiles"])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("extra", [None, "unassalpha", "assocalpha", "unspecified"])
def test_colours_of_every_layout(
    order: str, compression: str | None, planar: str, layout: dict[str, Any], dtype: type, extra: str | None
) -> None:
    """Against NumPy, to a value for the colour and one for alpha: Pillow cuts the low eight of sixteen bits off."""
    planes = RANDOM.integers(0, np.iinfo(dtype).max + 1, (4 if extra else 3, 24, 20), dtype=dtype)
    if extra == "assocalpha":
        planes[:3] = np.minimum(planes[:3], planes[3:])
    pixels = planes if planar == "separate" else np.moveaxis(planes, 0, -1)
    data = tiff(
        pixels, photometric="rgb", planarconfig=planar, compression=compression, byteorder=order,
        extrasamples=extra and [extra], **layout,
    )  # fmt: skip
    expected = eight_bits(planes)
    rgb = expected[:3] * (expected[3] / 255 if extra == "unassalpha" else 1)
    found = decode(data, (24, 20))
    np.testing.assert_allclose(found, rgb, atol=2.1)
    np.testing.assert_array_equal(decode(data, (24, 20), channels=1)[0], luma(found))
    if extra:
        np.testing.assert_allclose(decode(data, (24, 20), channels=4), expected, atol=0.5)


def luma(rgb: np.ndarray) -> np.ndarray:
    return np.asarray(Image.fromarray(rgb.transpose(1, 2, 0)).convert("L"))


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("compression", [None, "zlib"])
@pytest.mark.parametrize("planar", [False, True])
@pytest.mark.parametrize("photometric", ["minisblack", "miniswhite"])
@pytest.mark.parametrize("dtype", ["?", "u1", "u2", "i2", "u4", "i4", "f2", "f4", "f8"])
def test_gray_of_every_layout(order: str, compression: str | None, planar: bool, photometric: str, dtype: str) -> None:
    """Planes of one channel are strange and allowed; zero is white where the file says so, whatever its depth."""
    largest = 1 if dtype[0] == "f" else {"u1": 255, "i2": 32767}.get(dtype, 65535)
    values = UNIT > 0.5 if dtype == "?" else (UNIT * largest).astype(dtype)
    tag = [(290, "H", 1, 2, True)] if planar else []
    data = tiff(values, photometric=photometric, compression=compression, byteorder=order, extratags=tag)
    data = retagged(data, order, 290, 284) if planar else data
    expected = np.rint(eight_bits(values))
    expected = 255 - expected if photometric == "miniswhite" else expected
    for channels in (1, 3):
        found = decode(data, SIZE, channels=channels)
        np.testing.assert_allclose(found, np.stack([expected] * channels), atol=1 if dtype == "f2" else 0)


@pytest.mark.parametrize("photometric", ["minisblack", "miniswhite"])
@pytest.mark.parametrize("planar", ["contig", "separate"])
def test_gray_of_sixteen_bits_with_alpha(photometric: str, planar: str) -> None:
    planes = RANDOM.integers(0, 65536, (2, *SIZE), dtype=np.uint16)
    pixels = planes if planar == "separate" else np.moveaxis(planes, 0, -1)
    data = tiff(pixels, photometric=photometric, planarconfig=planar, extrasamples=["unassalpha"])
    gray, alpha = np.rint(planes / 257)
    gray = 255 - gray if photometric == "miniswhite" else gray
    np.testing.assert_array_equal(decode(data, SIZE, channels=2), [gray, alpha])
    np.testing.assert_allclose(decode(data, SIZE), [gray * alpha / 255] * 3, atol=1)


def test_pages_whose_zero_is_white_are_inverted_each() -> None:
    planes = RANDOM.integers(0, 65536, (5, *SIZE), dtype=np.uint16)
    data = tiff(planes, photometric="miniswhite")
    np.testing.assert_array_equal(decode(data, SIZE, channels=5), 255 - np.rint(planes / 257))


def test_channels_are_resized_and_cropped_each() -> None:
    planes = RANDOM.integers(0, 256, (5, 20, 30), dtype=np.uint8)
    data = tiff(planes, photometric="minisblack")
    found = decode(data, (8, 8), crop_pct=0.8, channels=5)
    for plane, pixels in zip(planes, found, strict=True):
        np.testing.assert_array_equal(pixels, decode(of(plane), (8, 8), crop_pct=0.8)[0])


def test_alpha_is_a_channel_where_four_are_asked_for() -> None:
    rgba = RANDOM.integers(0, 256, (*SIZE, 4), dtype=np.uint8)
    np.testing.assert_array_equal(decode(of(rgba), SIZE, channels=4), rgba.transpose(2, 0, 1))


def test_three_pages_are_three_channels() -> None:
    planes = RANDOM.integers(0, 256, (3, *SIZE), dtype=np.uint8)
    np.testing.assert_array_equal(decode(tiff(planes, photometric="minisblack"), SIZE), planes)


@pytest.mark.parametrize(
    ("data", "channels", "reason"),
    [
        (tiff(np.zeros((5, *SIZE), np.uint8), photometric="minisblack"), 3, "5 channels, not the 3 of data.channels"),
        (tiff(np.zeros((*SIZE, 7), np.uint8), photometric="minisblack", planarconfig="contig"), 3, "7 channels, not"),
        (tiff(np.zeros((5, *SIZE), np.uint8), photometric="minisblack"), 1, "5 channels, not the 1"),
        (tiff(np.zeros((5, *SIZE), np.uint8), photometric="minisblack"), 6, "5 channels, not the 6"),
        (of(RGB), 4, "3 channels, not the 4"),
        (of(GRAY), 2, "1 channels, not the 2"),
        (tiff(np.zeros((2, 3, *SIZE), np.uint8), photometric="minisblack", metadata={"axes": "ZCYX"}), 6, "the axes"),
        (tiff(np.full((5, *SIZE), -3, np.int16), photometric="minisblack"), 5, "values from -3 to 0"),
        (tiff(np.full((5, *SIZE), 2.5, np.float32), photometric="minisblack"), 5, "floats from 0 to 2.5"),
        (of(UNIT * 300, "TIFF"), 3, "floats from 0 to"),
        (of(np.where(UNIT > 0.5, np.nan, UNIT).astype(np.float32), "TIFF"), 3, "floats from nan"),
        (of(DEEP.astype(np.int32) * 2, "TIFF"), 3, "values from 0 to .* at most sixteen bits"),
        (b"", 3, "the file is empty"),
        (b"GIF", 3, "no image, or of a kind"),
        (of(RGB)[:200], 3, "truncated|Truncated|broken"),
        (JPEG[:-40], 3, "image file is truncated"),
        (tiff(RANDOM.integers(0, 256, (5, *SIZE), np.uint8), photometric="minisblack")[:400], 5, "failed to read"),
    ],
)  # fmt: skip
def test_images_that_cannot_be_used(data: bytes, channels: int, reason: str) -> None:
    with pytest.raises(BadImageError, match=reason) as found:
        decode(data, SIZE, channels=channels)
    assert "object at 0x" not in str(found.value)


def test_bombs_are_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sitar.images.decode.MAX_PIXELS", 100)
    with pytest.raises(BadImageError, match="10x12 pixels are more than 100"):
        decode(of(RGB), SIZE)
    with pytest.raises(BadImageError, match="600 values are more than 100"):
        decode(tiff(np.zeros((5, *SIZE), np.uint8), photometric="minisblack"), SIZE, channels=5)
    with pytest.raises(BadImageError, match="10x12 pixels are more than 100"):
        decode(dicom(GRAY), SIZE)


def test_a_real_bomb_is_a_bad_file() -> None:
    """A few kilobytes that would be two gigabytes."""
    import zlib

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    head = struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0)
    data = (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    )
    with pytest.raises(BadImageError, match="pixels"):
        decode(data, SIZE)


def test_bits() -> None:
    np.testing.assert_array_equal(to_eight_bits(np.array([True, False])), [255, 0])
    np.testing.assert_array_equal(to_eight_bits(np.array([0, 128, 129, 65535], np.uint16)), [0, 0, 1, 255])
    np.testing.assert_array_equal(to_eight_bits(np.array([0, 0.5, 1])), [0, 128, 255])


def dicom(pixels: np.ndarray, syntax: UID = ExplicitVRLittleEndian, **elements: Any) -> bytes:
    """A file as scanners write them; `elements` by their DICOM names."""
    meta = FileMetaDataset()
    meta.TransferSyntaxUID = syntax
    meta.MediaStorageSOPClassUID = SecondaryCaptureImageStorage
    meta.MediaStorageSOPInstanceUID = generate_uid()
    file = FileDataset("", {}, file_meta=meta, preamble=bytes(128))
    file.SOPClassUID, file.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
    file.Rows, file.Columns = pixels.shape[:2]
    file.SamplesPerPixel = 3 if pixels.ndim == 3 else 1
    file.PhotometricInterpretation = "RGB" if pixels.ndim == 3 else "MONOCHROME2"
    file.BitsAllocated = file.BitsStored = 8 * pixels.dtype.itemsize
    file.HighBit = file.BitsStored - 1
    file.PixelRepresentation = int(pixels.dtype.kind == "i")
    if pixels.ndim == 3:
        file.PlanarConfiguration = 0
    file.PixelData = pixels.tobytes()
    for name, value in elements.items():
        setattr(file, name, value)
    buffer = io.BytesIO()
    file.save_as(buffer, enforce_file_format=True)
    return buffer.getvalue()


HOUNSFIELD = RANDOM.integers(0, 4000, SIZE).astype(np.int16)


def linear(values: np.ndarray, low: float, high: float) -> np.ndarray:
    return np.rint(255 * np.clip((values - low) / (high - low), 0, 1))


def test_dicom_is_shown_through_its_window() -> None:
    window = {"RescaleSlope": 2, "RescaleIntercept": -1024, "WindowCenter": 40, "WindowWidth": 400}
    expected = linear(HOUNSFIELD * 2.0 - 1024, 40 - 0.5 - 199.5, 40 - 0.5 + 199.5)
    np.testing.assert_array_equal(decode(dicom(HOUNSFIELD, **window), SIZE)[0], expected)
    np.testing.assert_array_equal(decode(dicom(HOUNSFIELD, **window), SIZE, channels=1), expected[None])
    several = window | {"WindowCenter": [40, 600], "WindowWidth": [400, 2000]}
    np.testing.assert_array_equal(decode(dicom(HOUNSFIELD, **several), SIZE)[1], expected)
    inverted = window | {"PhotometricInterpretation": "MONOCHROME1"}
    np.testing.assert_array_equal(decode(dicom(HOUNSFIELD, **inverted), SIZE)[2], 255 - expected)


def test_dicom_without_a_window_from_its_darkest_to_its_brightest() -> None:
    expected = linear(DEEP, DEEP.min(), DEEP.max())
    np.testing.assert_array_equal(decode(dicom(DEEP), SIZE)[0], expected)
    np.testing.assert_array_equal(decode(dicom(np.full(SIZE, 9, np.uint16)), SIZE), np.zeros((3, *SIZE)))


def test_dicom_in_colour() -> None:
    np.testing.assert_array_equal(decode(dicom(RGB), SIZE), RGB.transpose(2, 0, 1))
    full = Image.fromarray(RGB).convert("YCbCr")
    pixels = decode(dicom(np.asarray(full), PhotometricInterpretation="YBR_FULL"), SIZE)
    np.testing.assert_allclose(pixels, np.asarray(full.convert("RGB")).transpose(2, 0, 1), atol=1)


@pytest.mark.parametrize(
    ("elements", "reason"),
    [
        ({"NumberOfFrames": 2, "PixelData": np.stack([GRAY, GRAY]).tobytes()}, "2 frames: save each"),
        ({"PixelData": GRAY.tobytes()[:50]}, "ValueError"),
        (
            {"syntax": JPEGLSLossless, "PixelData": encapsulate([b"not really a frame"])},
            "Unable to decompress .* requires [^\n]*pyjpegls",
        ),
    ],
)
def test_dicom_files_that_cannot_be_used(elements: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadImageError, match=reason):
        decode(dicom(GRAY, **elements), SIZE)


def test_a_dicom_file_without_an_image() -> None:
    with pytest.raises(BadImageError, match="without an image"):
        decode(dicom(GRAY)[:300], SIZE)


def test_folders_of_any_kind(tmp_path: Path) -> None:
    """The whole way: DICOM by its suffix, stacks with their channels, files that differ named."""
    root = tmp_path / "scans"
    for i in range(12):
        place = root / "ab"[i % 2]
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{i}.dcm").write_bytes(dicom(GRAY))
    shares = {"val_share": 0.0, "test_share": 0.0}
    data = load_data(FolderConfig(root=str(root), image_size=8, channels=1, **shares))
    assert data.train.x.shape == (12, 1, 8, 8)
    np.testing.assert_array_equal(data.train.x[3].numpy(), decode(dicom(GRAY), (8, 8), channels=1))
    cells = tmp_path / "cells"
    for i in range(12):
        place = cells / "ab"[i % 2]
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{i}.tif").write_bytes(tiff(np.full((5 + (i == 4), *SIZE), i, np.uint8), photometric="minisblack"))
    config = FolderConfig(root=str(cells), image_size=8, channels=5, **shares)
    with pytest.raises(DataError, match=r"1 of 12 images .*a/4\.tif: 6 channels, not the 5 of data\.channels"):
        load_data(config)
    assert load_data(config.model_copy(update={"on_bad": "skip"})).train.x.shape == (11, 5, 8, 8)


def test_images_that_are_left_out_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for i in range(12):
        (tmp_path / "data" / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / "ab"[i % 2] / f"{i}.png").write_bytes(of(RGB) if i else b"")
    load_data(FolderConfig(root=str(tmp_path / "data"), image_size=8, on_bad="skip"))
    of_data = f"1 of 12 images of the data set in {str(tmp_path / 'data')!r} are left out, such as a/0.png: the file is"
    assert of_data in caplog.text


@pytest.mark.parametrize(("package", "content"), [("pydicom", "dicom"), ("tifffile", "tiff")])
def test_a_missing_package_stops_everything(
    package: str, content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither one image nor the cache may remember it: it is not the fault of the file."""
    data = dicom(GRAY) if content == "dicom" else tiff(np.zeros((5, *SIZE), np.uint8), photometric="minisblack")
    for name in ("a.dcm", "b.dcm"):
        (tmp_path / name).write_bytes(data)
    arguments = ("made", ["a.dcm", "b.dcm"], Files([tmp_path]), SIZE)
    channels = 1 if content == "dicom" else 5
    (tmp_path / "hidden" / package).mkdir(parents=True)
    (tmp_path / "hidden" / package / "__init__.py").write_text("raise ImportError('hidden')")
    with monkeypatch.context() as patch:
        environment = {**os.environ, "PYTHONPATH": f"{tmp_path / 'hidden'}:{':'.join(sys.path)}"}
        patch.setattr("sitar.images.decoder_pool.module_environment", lambda: environment)
        for on_bad in ("fail", "skip"):
            with pytest.raises(DataError, match=rf'need {package}: pip install "sitar\[medical\]"'):
                cached_images(*arguments, channels=channels, on_bad=on_bad)
    assert cached_images(*arguments, channels=channels).good.all()


def test_bad_files_are_tried_again_until_they_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A codec that is installed afterwards must help, and nothing that was good is decoded twice."""
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(of(RGB) if name == "a.png" else b"x")
    arguments = ("made", ["a.png", "b.png"], Files([tmp_path]), SIZE)
    real, asked = DecoderPool.decode, []

    def counted(*given: Any) -> Any:
        asked.append(given[-1])
        return real(*given)

    monkeypatch.setattr(DecoderPool, "decode", counted)
    for _ in range(2):
        with pytest.raises(DataError, match="1 of 2 images"):
            cached_images(*arguments)
    assert cached_images(*arguments, on_bad="skip").good.tolist() == [True, False]
    with pytest.raises(DataError, match="1 of 2 images"):
        cached_images(*arguments)
    assert asked == [[[0, 1]], [[1]], [[1]]]


def test_what_cannot_even_be_read_is_a_bad_file(tmp_path: Path) -> None:
    (tmp_path / "folder.png").mkdir()
    content = of(RGB)
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as file:
        file.writestr("a.png", content)
        file.writestr("b.png", content)
    archive = bytearray((tmp_path / "images.zip").read_bytes())
    archive[archive.index(content) + 60] ^= 255
    (tmp_path / "images.zip").write_bytes(archive)
    files = Files([tmp_path], [tmp_path / "images.zip"])
    bad = cached_images("made", ["a.png", "b.png", "folder.png"], files, SIZE, on_bad="skip").bad
    assert bad == {
        "a.png": "the zip archive is damaged here: Bad CRC-32 for file 'a.png'",
        "folder.png": "not a regular file, but a folder, a pipe, a socket or a device",
    }


def test_what_is_no_regular_file_is_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    (tmp_path / "data" / "a").mkdir(parents=True)
    (tmp_path / "data" / "b").mkdir()
    for i in range(12):
        (tmp_path / "data" / "ab"[i % 2] / f"{i}.png").write_bytes(of(RGB))
    os.mkfifo("data/a/pipe.png")
    os.symlink("/dev/zero", "data/a/device.png")
    os.symlink("../a/pipe.png", "data/b/link.png")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("data/b/socket.png")
        config = FolderConfig(root="data", image_size=8, on_bad="skip")
        _, cached = Folder.prepare(config)
    assert set(cached.bad) == {"a/pipe.png", "a/device.png", "b/link.png", "b/socket.png"}
    assert set(cached.bad.values()) == {"not a regular file, but a folder, a pipe, a socket or a device"}
    assert cached.good.sum() == 12


def test_a_person_sees_the_pixels_that_a_model_sees() -> None:
    """In its own size: what is shown is what is decoded."""
    files = {"photo": io.BytesIO(), "deep": io.BytesIO(), "three pages": io.BytesIO()}
    Image.fromarray(RGB).save(files["photo"], "PNG")
    Image.fromarray(DEEP).save(files["deep"], "TIFF")
    tifffile.imwrite(files["three pages"], RGB.transpose(2, 0, 1), photometric="minisblack")
    for kind, file in files.items():
        shown = np.asarray(upright(file.getvalue()))
        assert shown.shape == (*SIZE, 3), kind
        np.testing.assert_array_equal(shown.transpose(2, 0, 1), decode(file.getvalue(), SIZE), kind)
    with pytest.raises(BadImageError, match="truncated"):
        upright(files["photo"].getvalue()[:200])


def test_a_small_file_with_millions_of_pages_is_refused_at_once() -> None:
    """The fuzzer made it of a file of 9x7 pixels. tifffile went through its pages for minutes."""
    packed = (
        "eNrz9NRi4GBgYOBiYGBkYWAEstiBmBHK5gRiJkZmBmYg3QbEzEA2SByE2aBsJiAWhKrvAWJRqDhIjxiSOeJQ9l4glkEyp4EBAjgY"
        "FrlwsZx/MWtX17sLDLc4dunc6fLJZpdfvXRO4r9f65auT1ba3upf/ehd9MSg6WHJjy3niV45YXufL1St6LQVb7qR+GSf1UYfYqUW"
        "vCn4XJ8z7+/H0oN1bScyd299K7vzzTfmO7++qP54dLHK+sxr586Ct1y75rBvZznY9EbgmmB47rd+J9tHlvKeU3vP9XlmXphPhqEA"
        "wvVp/A=="
    )
    content = zlib.decompress(base64.b64decode(packed))
    assert len(content) < 400
    began = time.process_time()
    with pytest.raises(BadImageError, match="more than 4,096 pages"):
        decode(content, (8, 8))
    assert time.process_time() - began < 5


@pytest.mark.parametrize("mode", ["RGBA", "LA", "PA", "P", "L", "RGB"])
def test_alpha_is_laid_over_black_strip_by_strip_as_if_at_once(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large image with alpha would else be in memory four times."""
    random = np.random.default_rng(0)
    image = Image.fromarray(random.integers(0, 256, (23, 9, 4), np.uint8)).convert("RGBA")
    image = image.convert("LA").convert("PA") if mode == "PA" else image.convert("RGB" if mode == "P" else mode)
    if mode == "P":
        image = image.quantize(8)
        image.info["transparency"] = bytes(range(0, 256, 32))
    elif mode in ("L", "RGB"):
        image.info["transparency"] = image.getpixel((3, 5))
    monkeypatch.setattr("sitar.images.decode.STRIP", 20)
    rgba = image.convert("RGBA")
    black = Image.new("RGBA", rgba.size, (0, 0, 0, 255))
    assert to_rgb(image).tobytes() == Image.alpha_composite(black, rgba).convert("RGB").tobytes()


TWELVE = RANDOM.integers(960, 3201, SIZE, dtype=np.uint16)
TWELVE.flat[:2] = 960, 3200


@pytest.mark.parametrize(
    ("data", "channels", "words"),
    [
        (of(TWELVE), 1, "values from 960 to 3200 of 65,535"),
        (of(TWELVE, "TIFF"), 3, "values from 960 to 3200 of 65,535"),
        (tiff(np.stack([TWELVE] * 5), photometric="minisblack"), 5, "values from 960 to 3200 of 65,535"),
        (tiff(np.stack([DEEP, *[TWELVE] * 4]), photometric="minisblack"), 5, None),
        (
            of(np.linspace(0.25, 0.3125, 120, dtype=np.float32).reshape(SIZE), "TIFF"),
            1,
            "values from 0.25 to 0.3125 of 1",
        ),
        (of(TWELVE * 16), 1, None),
        (of(DEEP), 1, None),
        (of(np.full(SIZE, 300, np.uint16)), 1, None),  # blank in any scale
        (of(GRAY // 20), 1, None),  # eight bits are what they are
    ],
)
def test_images_that_use_little_of_their_range_are_told_from_others(
    data: bytes, channels: int, words: str | None
) -> None:
    assert decode_bytes(data, SIZE, channels=channels).narrow == words


def test_a_cache_keeps_which_images_use_little_of_their_range(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name, pixels in {"a": DEEP, "b": TWELVE, "c": TWELVE}.items():
        (tmp_path / f"{name}.png").write_bytes(of(pixels))
    for _ in range(2):  # decoded, and read from the cache
        caplog.clear()
        cached = cached_images("deep", ["a.png", "b.png", "c.png"], Files([tmp_path]), SIZE)
        cached.warn("images")
        (said,) = [record.getMessage() for record in caplog.records]
        assert said.startswith(
            "2 of 3 images have more than eight bits and use less than a tenth of their range, such as b.png: values "
            "from 960 to 3200 of 65,535."
        )
        assert "times 16" in said
