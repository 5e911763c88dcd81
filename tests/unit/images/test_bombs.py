"""Small image files that would take minutes or gigabytes are refused at once, and what looks like them is read."""

from __future__ import annotations

import io
import re
import struct
import time
import tracemalloc
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image
from pydicom.encaps import encapsulate, encapsulate_extended
from pydicom.uid import JPEG2000, JPEGBaseline8Bit, JPEGLSLossless, RLELossless

from sitar.errors import DataError
from sitar.images.bit_depth import STRIP, BadImageError, to_eight_bits
from sitar.images.decode import decode
from sitar.images.files import Files, read_text
from sitar.images.jpeg import MOST_SCANS
from sitar.images.tiff import DESCRIBED, MOST_PAGES

from .test_decode import dicom, saved, tiff

RANDOM = np.random.default_rng(5)
SIZE = (16, 16)
PLANES = RANDOM.integers(0, 256, (2, *SIZE), dtype=np.uint8)
MiB = 2**20


@contextmanager
def at_most(seconds: float, memory: int) -> Iterator[None]:
    """Time and memory that Python and NumPy may take."""
    tracemalloc.start()
    start = time.perf_counter()
    try:
        yield
        assert time.perf_counter() - start < seconds
        assert tracemalloc.get_traced_memory()[1] < memory
    finally:
        tracemalloc.stop()


# Zip archives


@pytest.mark.parametrize("packing", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_member_is_not_unpacked_to_more_than_it_claims(packing: int, tmp_path: Path) -> None:
    """Python unpacks a chunk of these as a whole, and looks at the size afterwards."""
    for name in ("images", "a"):
        with zipfile.ZipFile(tmp_path / f"{name}.zip", "w", packing) as archive:
            archive.writestr("a.txt" if name == "a" else "a.png", bytes(64 * MiB))
        content = (tmp_path / f"{name}.zip").read_bytes()
        (tmp_path / f"{name}.zip").write_bytes(content.replace(struct.pack("<I", 64 * MiB), struct.pack("<I", 100)))
    with at_most(2, 4 * MiB):
        with pytest.raises(BadImageError, match=r"the zip archive is damaged here: .*packed in a way that is not read"):
            Files([], [tmp_path / "images.zip"]).read("a.png")
        with pytest.raises(DataError, match=r"is damaged or was cut .*packed in a way that is not read"):
            read_text(tmp_path, "a.txt")


# TIFF

OME = """<?xml version="1.0" encoding="UTF-8"?><OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06"
UUID="urn:uuid:0"><Image ID="Image:0"><Pixels ID="Pixels:0" DimensionOrder="XYCZT" Type="uint8" SizeX="16" SizeY="16"
SizeC="{c}" SizeZ="{z}" SizeT="1"><Channel ID="Channel:0:0" SamplesPerPixel="1"/>{planes}</Pixels>{more}</Image>
{end}</OME>"""
MODULO = """<StructuredAnnotations><XMLAnnotation ID="A:0" Namespace="openmicroscopy.org/omero/dimension/modulo"><Value>
<Modulo><ModuloAlongZ Type="lambda" Start="0" End="3000000" Step="1"/></Modulo></Value></XMLAnnotation>
</StructuredAnnotations>"""


def ome(pages: np.ndarray, c: int = 1, z: int = 1, planes: str = "<TiffData/>", more: str = "", end: str = "") -> bytes:
    text = OME.format(c=c, z=z, planes=planes, more=more, end=end)
    return tiff(pages, description=text, metadata=None, photometric="minisblack")


@pytest.mark.parametrize("text", [{"z": 3_000_000}, {"more": '<AnnotationRef ID="A:0"/>', "end": MODULO}])
def test_sizes_that_a_text_in_a_tiff_file_claims_are_not_believed(text: dict[str, object]) -> None:
    with at_most(2, 8 * MiB), pytest.raises(BadImageError, match="2 channels, not the 3"):
        decode(ome(PLANES, **text), SIZE)  # type: ignore[arg-type]


PART = "".join(
    f'<TiffData IFD="0" FirstC="{c}" PlaneCount="1"><UUID FileName="c{c}.ome.tif">urn:uuid:{c}</UUID></TiffData>'
    for c in range(2)
)


def test_a_file_of_a_set_is_not_taken_for_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The channels in other files would be black."""
    part = ome(PLANES[:1], c=2, planes=PART)
    with pytest.raises(BadImageError, match="1 channels, not the 2"):
        decode(part, SIZE, channels=2)
    monkeypatch.setattr("sitar.images.tiff.DESCRIBED", ())  # as if tifffile learned of another such kind
    with pytest.raises(BadImageError, match="pages that are missing"):
        decode(part, SIZE, channels=2)


def test_fewer_pages_than_imagej_describes_are_refused() -> None:
    text = "ImageJ=1.11a\nimages=3\nchannels=3\nhyperstack=true\nmode=grayscale\n"
    data = tiff(PLANES, description=text, metadata=None, photometric="minisblack", compression="zlib")
    with pytest.raises(BadImageError, match=re.escape("(2, 16, 16) values, where a text in the file describes (3, ")):
        decode(data, SIZE, channels=3)


@pytest.mark.parametrize("compression", [None, "zlib"])
@pytest.mark.parametrize("kind", ["ome", "imagej"])
def test_channels_of_microscopes_are_read(kind: str, compression: str | None) -> None:
    form = {kind: True, "metadata": {"axes": "CYX"}, "compression": compression}
    np.testing.assert_array_equal(decode(tiff(PLANES, **form), SIZE, channels=2), PLANES)


def test_an_imagej_file_of_one_page_has_all_of_its_channels() -> None:
    """As ImageJ writes large ones: the values of the others follow those of the first."""
    data = bytearray(tiff(PLANES, imagej=True, metadata={"axes": "CYX"}))
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        start = file.pages.first.offset
    (tags,) = struct.unpack_from("<H", data, start)
    struct.pack_into("<I", data, start + 2 + 12 * tags, 0)
    np.testing.assert_array_equal(decode(bytes(data), SIZE, channels=2), PLANES)


def test_no_kind_that_tifffile_reads_from_a_text_is_forgotten() -> None:
    kinds = {name.removeprefix("_series_") for name in dir(tifffile.TiffFile) if name.startswith("_series_")}
    assert kinds - set(DESCRIBED) == {"shaped", "imagej", "uniform", "generic"}


def pages(n: int, strips: int = 1, inner: int = 0) -> bytes:
    """A file of `n` pages that all have the same strips, and the same pages within them."""
    data = bytearray(struct.pack("<2sHI", b"II", 42, 0) + bytes(64))
    tags = [(256, 3, 1, 8), (257, 4, 1, 8 * strips), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1), (277, 3, 1, 1)]
    for tag, values in ((273, [8] * strips), (279, [64] * strips), (330, [0] * inner)):
        if values:
            tags.append((tag, 4, len(values), values[0] if len(values) == 1 else len(data)))
            data += struct.pack(f"<{len(values)}I", *values) if len(values) > 1 else b""
    tags = sorted([*tags, (278, 3, 1, 8)])
    struct.pack_into("<I", data, 4, len(data))
    if inner:
        place = next(value for tag, _, _, value in tags if tag == 330)
        struct.pack_into(f"<{inner}I", data, place, *[len(data)] * inner)
    for i in range(n):
        end = len(data) + 2 + 12 * len(tags) + 4
        data += struct.pack("<H", len(tags)) + b"".join(struct.pack("<HHII", *tag) for tag in tags)
        data += struct.pack("<I", end if i < n - 1 else 0)
    return bytes(data)


def test_pages_of_a_tiff_file_are_not_counted_to_the_last() -> None:
    data = pages(30_000)
    start = time.perf_counter()
    for channels in (1, 2, 3):
        with pytest.raises(BadImageError, match="more than 4,096 pages"):
            decode(data, SIZE, channels=channels)
    assert time.perf_counter() - start < 3 * 2


def test_as_many_pages_as_are_allowed_are_channels() -> None:
    assert decode(pages(MOST_PAGES), (2, 2), channels=MOST_PAGES).shape == (MOST_PAGES, 2, 2)
    assert decode(pages(3), (2, 2)).shape == (3, 2, 2)
    assert decode(pages(1), (2, 2)).shape == (3, 2, 2)
    with pytest.raises(BadImageError, match="2 channels, not the 1"):
        decode(pages(2), (2, 2), channels=1)


@pytest.mark.parametrize(
    ("data", "reason"),
    [(pages(2, inner=5000), "more than 4,096 pages"), (pages(500, 10_000), "more than 4,194,304 strips")],
    ids=["pages within pages", "strips"],
)
def test_what_pages_share_is_counted_for_each(data: bytes, reason: str) -> None:
    start = time.perf_counter()
    with pytest.raises(BadImageError, match=reason):
        decode(data, SIZE, channels=2)
    assert time.perf_counter() - start < 2


# JPEG


def part(marker: int, content: bytes) -> bytes:
    return bytes([0xFF, marker]) + struct.pack(">H", len(content) + 2) + content


def jpeg(scans: int, frame: int = 0xC2, note: bytes = b"", filling: bytes = b"", side: int = 16) -> bytes:
    """An image of three channels whose scans are empty: progressive (C2) or not (C0)."""
    channels = b"".join(bytes([i, 0x11, 0]) for i in (1, 2, 3))
    data = b"\xff\xd8" + part(0xDB, bytes([0, *[1] * 64])) + (part(0xFE, note) if note else b"")
    data += part(frame, struct.pack(">BHHB", 8, side, side, 3) + channels)
    data += part(0xC4, bytes([0x00, 1, *[0] * 15, 0])) + part(0xC4, bytes([0x10, 1, *[0] * 15, 0]))
    for i in range(scans):
        data += part(0xDA, bytes([1, i % 3 + 1, 0, *((0, 0) if frame == 0xC2 else (0, 63)), 0])) + filling
    return data + b"\xff\xd9"


BOMBS = {
    "progressive": jpeg(600),
    "one channel a scan": jpeg(600, 0xC0),
    "behind something without a length": jpeg(600, filling=b"\xff\x01\xff\xd0\xff"),
}


@pytest.mark.parametrize("kind", BOMBS)
def test_a_jpeg_file_of_very_many_scans_is_refused(kind: str) -> None:
    with pytest.raises(BadImageError, match="a JPEG file of more than 500 scans"):
        decode(BOMBS[kind], SIZE)


@pytest.mark.parametrize("frame", [0xC0, 0xC2])
def test_scans_are_counted_and_not_what_looks_like_them(frame: int) -> None:
    """Texts within a file, and a video behind the image, as phones write it."""
    assert decode(jpeg(MOST_SCANS, frame), SIZE).shape == (3, *SIZE)
    alike = jpeg(3, frame, note=b"\xff\xda" * 600) + b"\xff\xda\0\x08" * 600
    assert decode(alike, SIZE).shape == (3, *SIZE)
    ordinary = saved(Image.fromarray(PLANES[0]).convert("RGB"), "JPEG", progressive=True)
    assert 1 < ordinary.count(b"\xff\xda") < 20
    assert decode(ordinary, SIZE).shape == (3, *SIZE)


# DICOM

EMPTY = np.zeros((*SIZE, 3), np.uint8)


@pytest.mark.parametrize("syntax", [JPEGBaseline8Bit, JPEG2000], ids=["JPEG", "called JPEG 2000"])
@pytest.mark.parametrize("fragments", [1, 700])
def test_very_many_scans_within_dicom_are_refused(syntax: str, fragments: int) -> None:
    """Also where the fragments of the file divide the image."""
    with pytest.raises(BadImageError, match="a JPEG file of more than 500 scans"):
        decode(dicom(EMPTY, syntax, PixelData=encapsulate([BOMBS["progressive"]], fragments)), SIZE)  # type: ignore[arg-type]


def test_the_image_within_dicom_is_that_of_its_head() -> None:
    image = saved(Image.fromarray(EMPTY), "JPEG")
    assert decode(dicom(EMPTY, JPEGBaseline8Bit, PixelData=encapsulate([image])), SIZE).shape == (3, *SIZE)
    pixels, offsets, lengths = encapsulate_extended([image])
    table = {"PixelData": pixels, "ExtendedOffsetTable": offsets, "ExtendedOffsetTableLengths": lengths}
    assert decode(dicom(EMPTY, JPEGBaseline8Bit, **table), SIZE).shape == (3, *SIZE)
    with pytest.raises(BadImageError, match=r"a DICOM file of 8x16 pixels that holds others: \(16, 16\)"):
        decode(dicom(EMPTY[:, :8], JPEGBaseline8Bit, PixelData=encapsulate([image])), SIZE)
    with pytest.raises(BadImageError, match="does not hold one frame"):
        decode(dicom(EMPTY, JPEGBaseline8Bit, PixelData=encapsulate([image, image])), SIZE)


def test_jpeg_2000_has_a_bound_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    image = saved(Image.fromarray(EMPTY), "JPEG2000")
    packed = dicom(EMPTY, JPEG2000, PixelData=encapsulate([image]))
    for data in (image, packed):
        assert decode(data, SIZE).shape == (3, *SIZE)
    monkeypatch.setattr("sitar.images.decode.MOST_JPEG2000", 200)
    monkeypatch.setattr("sitar.images.dicom.MOST_JPEG2000", 200)
    for data in (image, packed):
        with pytest.raises(BadImageError, match="16x16 pixels are more than 200"):
            decode(data, SIZE)


def run_lengths(*segments: bytes) -> bytes:
    starts = [64 + sum(len(segment) for segment in segments[:i]) for i in range(len(segments))]
    return encapsulate([struct.pack("<16L", len(segments), *starts, *[0] * (15 - len(segments))) + b"".join(segments)])


def test_run_lengths_that_are_longer_than_the_image_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = b"\x81\x07"  # 128 times a seven
    fits = dicom(EMPTY, RLELossless, PixelData=run_lengths(*[2 * runs] * 3))
    assert (decode(fits, SIZE) == 7).all()
    with at_most(2, 32 * MiB), pytest.raises(BadImageError, match="run lengths are longer than its image"):
        decode(dicom(EMPTY, RLELossless, PixelData=run_lengths(runs * MiB, 2 * runs, 2 * runs)), SIZE)
    monkeypatch.setattr("sitar.images.dicom.MOST_UNPACKED", 1000)  # from here on, runs are followed before
    assert (decode(fits, SIZE) == 7).all()
    worse = dicom(EMPTY, RLELossless, PixelData=run_lengths(2 * runs, 2 * runs, 5 * runs))
    with pytest.raises(BadImageError, match="run lengths are longer than its image"):
        decode(worse, SIZE)
    monkeypatch.setattr("sitar.images.dicom.MOST_UNPACKED", 700)
    with pytest.raises(BadImageError, match="unpacks to more than 700 bytes"):
        decode(fits, SIZE)


def test_what_pillow_does_not_know_is_left_to_pydicom() -> None:
    with pytest.raises(BadImageError, match="pyjpegls"):
        decode(dicom(EMPTY, JPEGLSLossless, PixelData=encapsulate([b"something else"])), SIZE)


# Eight bits


def whole(values: np.ndarray) -> np.ndarray:
    """All values at once."""
    if values.dtype.kind == "b":
        return values.astype(np.uint8) * 255
    scaled = values * 255 if values.dtype.kind == "f" else values.astype(np.float32) / 257
    return np.rint(scaled).astype(np.uint8)


@pytest.mark.parametrize("dtype", ["?", "<u2", ">u2", "<i4", ">i4", "u4", "f2", "f4", ">f4", "f8"])
@pytest.mark.parametrize("shape", [(3, STRIP // 2 + 1), (5 * STRIP // 2,), (STRIP + 3, 1), (0, 4)])
def test_strips_have_the_values_of_the_whole(dtype: str, shape: tuple[int, ...]) -> None:
    unit = RANDOM.random(shape)
    values = unit > 0.5 if dtype == "?" else (unit * (1 if "f" in dtype else 65535)).astype(dtype)
    for form in (values, values.T, values[::-1, ...], values[..., ::3]):
        found = to_eight_bits(form)
        assert found.dtype == np.uint8
        np.testing.assert_array_equal(found, whole(form))


def test_eight_bits_take_no_memory_but_their_own() -> None:
    values = np.zeros((4096, 4096), np.float64)
    with at_most(5, values.size + 32 * STRIP):
        to_eight_bits(values)
