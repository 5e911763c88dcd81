"""Image files of every kind that is read: Pillow's, TIFF with any number of channels, and DICOM."""

from __future__ import annotations

import io
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from PIL import Image

from fuzz.mutate import NUMBERS, WORDS, damaged, strange, wrong_array
from fuzz.parsers.parser import Parser
from sitar.errors import DataError
from sitar.images.bit_depth import BadImageError
from sitar.images.decode import decode, upright


def _decoded(channels: tuple[int, ...], content: bytes) -> None:
    try:
        for number in channels:
            decode(content, (8, 8), None, number)
        decode(content, (8, 8), 0.9, channels[0])
        if channels[0] == 3:
            upright(content)
    except BadImageError as error:  # which the cache counts, or refuses with this reason
        if not str(error).strip():
            raise AssertionError("no reason is given") from error
        raise DataError(str(error)) from error


def _pixels(*shape: int, dtype: str = "u1") -> Any:
    high = np.iinfo(dtype).max if dtype[0] in "iu" else 1
    return (np.random.default_rng(0).random(shape) * high).astype(dtype)


def photos(folder: Path) -> Parser:
    seeds = []
    for kind, mode in (
        ("PNG", "RGB"),
        ("PNG", "RGBA"),
        ("PNG", "P"),
        ("PNG", "I;16"),
        ("PNG", "1"),
        ("JPEG", "RGB"),
        ("JPEG", "CMYK"),
        ("BMP", "RGB"),
        ("GIF", "P"),
        ("WEBP", "RGB"),
        ("PPM", "RGB"),
        ("TIFF", "RGB"),
    ):
        buffer = io.BytesIO()
        image = (
            Image.fromarray(_pixels(9, 7, dtype="u2"))
            if mode == "I;16"
            else Image.fromarray(_pixels(9, 7, 3)).convert(mode)
        )
        exif = Image.Exif()
        exif[274] = 6
        image.save(buffer, kind, **({"exif": exif} if kind in ("JPEG", "PNG", "WEBP") else {}))
        seeds.append(buffer.getvalue())

    def wrong(random: Random, content: bytes) -> bytes:
        """Damage the first bytes, where headers are, or put the beginning of one kind before the rest of another."""
        if random.random() < 0.3:
            other = random.choice(
                (
                    *seeds,
                    b"%!PS-Adobe-3.0 EPSF-3.0\n",
                    b"<svg xmlns='http://www.w3.org/2000/svg'/>",
                    b"II+\0",
                    b"\x00" * 128 + b"DICM",
                )
            )
            cut = random.randrange(1, 60)
            return other[:cut] + content[cut:]
        head = random.choice((16, 32, 64))
        return damaged(random, content[:head], 1) + content[head:]

    return Parser("image", seeds, partial(_decoded, (3, 1)), wrong)


def tiff(folder: Path) -> Parser:
    import tifffile

    shapes = [(5, 9, 7), (9, 7), (9, 7, 3), (2, 9, 7), (9, 7, 4)]

    def write(array: Any, **options: Any) -> bytes:
        buffer = io.BytesIO()
        tifffile.imwrite(buffer, array, **options)
        return buffer.getvalue()

    def read(content: bytes) -> None:
        failed = 0
        for channels in (3, 5):
            try:
                _decoded((channels,), content)
            except DataError:
                failed += 1
        if failed == 2:
            raise DataError("neither")

    seeds = [write(_pixels(*shape, dtype=dtype)) for shape in shapes for dtype in ("u1", "u2", "f4")]
    planes = {"photometric": "minisblack", "planarconfig": "contig"}
    seeds += [
        write(_pixels(9, 7, 5), **planes),
        write(_pixels(9, 7, 5, dtype="u2"), **planes, compression="zlib"),
        write(_pixels(9, 7, 3), bigtiff=True),
        write(_pixels(32, 32, 5), **planes, tile=(16, 16)),
    ]

    def wrong(random: Random, content: bytes) -> bytes:
        """Write another array, with other options, or change an entry of the directory."""
        try:
            array = wrong_array(random, tifffile.imread(io.BytesIO(content)))
            if random.random() < 0.5 and array.dtype.kind in "iufc":
                options = random.choice(
                    (
                        {},
                        {"byteorder": ">"},
                        {"photometric": "minisblack"},
                        {"photometric": "miniswhite"},
                        {"planarconfig": "separate"},
                        {"compression": "zlib"},
                        {"bigtiff": True},
                        {"extrasamples": ["unspecified"]},
                        {"resolution": (0, 0)},
                        {"tile": (16, 16)},
                    )
                )
                return write(array, **options)
        except Exception:  # tifffile does not write everything that one may think of
            pass
        place = content.find(
            random.choice(
                (
                    b"\x00\x01\x04\x00",
                    b"\x01\x01\x04\x00",
                    b"\x02\x01\x03\x00",
                    b"\x03\x01\x03\x00",
                    b"\x15\x01\x03\x00",
                    b"\x1c\x01\x03\x00",
                    b"\x53\x01\x03\x00",
                    b"\x11\x01\x04\x00",
                )
            )
        )
        if place < 0:
            return damaged(random, content, 2)
        number = (random.choice(NUMBERS) % 2**32).to_bytes(4, "little")
        at = place + random.choice((4, 8))
        return content[:at] + number + content[at + 4 :]

    return Parser("tiff", seeds, read, wrong)


def dicom(folder: Path) -> Parser:
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import DeflatedExplicitVRLittleEndian, ExplicitVRLittleEndian, ImplicitVRLittleEndian

    def made(syntax: Any = ExplicitVRLittleEndian, **values: Any) -> Any:
        meta = FileMetaDataset()
        meta.TransferSyntaxUID = syntax
        meta.MediaStorageSOPClassUID = meta.MediaStorageSOPInstanceUID = "1.2.3"
        file = FileDataset("", {}, file_meta=meta, preamble=b"\0" * 128)
        common = {
            "Rows": 9, "Columns": 7, "BitsAllocated": 16, "BitsStored": 12, "HighBit": 11, "SamplesPerPixel": 1,
            "PixelRepresentation": 0, "PhotometricInterpretation": "MONOCHROME2", "PixelData": _pixels(9, 7,
            dtype="u2").tobytes(),
        }  # fmt: skip
        for name, value in (common | values).items():
            setattr(file, name, value)
        return file

    colours = {
        "SamplesPerPixel": 3,
        "PhotometricInterpretation": "RGB",
        "PlanarConfiguration": 0,
        "BitsAllocated": 8,
        "BitsStored": 8,
        "HighBit": 7,
        "PixelData": _pixels(9, 7, 3).tobytes() + b"\0",
    }
    files = [
        made(), made(ImplicitVRLittleEndian), made(DeflatedExplicitVRLittleEndian), made(WindowCenter=100,
        WindowWidth=50),
        made(RescaleSlope=2, RescaleIntercept=-5), made(PhotometricInterpretation="MONOCHROME1"), made(**colours),
    ]  # fmt: skip

    def write(file: Any) -> bytes:
        buffer = io.BytesIO()
        file.save_as(buffer, enforce_file_format=False)
        return buffer.getvalue()

    seeds = [write(file) for file in files]
    names = (
        *colours,
        "Rows",
        "Columns",
        "PixelRepresentation",
        "WindowCenter",
        "WindowWidth",
        "RescaleSlope",
        "RescaleIntercept",
        "NumberOfFrames",
        "VOILUTFunction",
        "PixelData",
    )

    def wrong(random: Random, content: bytes) -> bytes:
        """Give elements other values, or take them away."""
        from pydicom import config, dcmread

        config.settings.writing_validation_mode = config.IGNORE
        file = dcmread(io.BytesIO(content))
        for _ in range(random.choice((1, 2, 3))):
            name = random.choice(names)
            value = random.choice(
                (
                    None,
                    "",
                    0,
                    1,
                    3,
                    8,
                    16,
                    64,
                    65_535,
                    1e300,
                    "nan",
                    "inf",
                    [1, 2],
                    b"",
                    b"\0" * 3,
                    "RGB",
                    "YBR_FULL",
                    "PALETTE COLOR",
                    random.choice(WORDS),
                    strange(random),
                )
            )
            try:
                if value is None and name in file:
                    del file[name]
                else:
                    setattr(file, name, value)
                write(file)
            except Exception:  # pydicom does not write everything that one may think of
                file = dcmread(io.BytesIO(content))
        return write(file)

    return Parser("dicom", seeds, partial(_decoded, (3, 1)), wrong)
