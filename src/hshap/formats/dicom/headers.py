"""Headers of DICOM files: a file that is no image, or cannot be decoded, is refused by name."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

from hshap.errors import FormatError, require
from hshap.formats.refusals import quietly, refuse_large

if TYPE_CHECKING:
    from pathlib import Path

    from hshap._util.types import Untyped

MAGIC, MAGIC_AT = b"DICM", 128

DEFLATED = "1.2.840.10008.1.2.1.99"

MOST_UNPACKED = 2**29
"""Bytes to which a deflated file may unpack, header and all."""

SEGMENTATIONS = ("1.2.840.10008.5.1.4.1.1.66.4", "1.2.840.10008.5.1.4.1.1.66.7")


def is_dicom(path: Path) -> bool:
    """Tell whether a file starts as a DICOM file does."""
    with path.open("rb") as file:
        return starts_as_dicom(file.read(MAGIC_AT + 4))


def starts_as_dicom(data: bytes) -> bool:
    """Tell whether the content of a file starts as that of a DICOM file does."""
    return data[MAGIC_AT : MAGIC_AT + 4] == MAGIC


def library() -> Untyped:
    """Return pydicom."""
    return require("pydicom", extra="medical", needed_by="reading DICOM")


def header_of(path: Path, *, pixels: bool = False) -> Untyped:
    """Read a file, with its pixels if they are asked for; refuse one that is no image."""
    pydicom = library()
    _refuse_other_kinds(path)
    with quietly(path, "reading its header"):
        head: Untyped = pydicom.filereader.read_file_meta_info(path)
        syntax = str(head.get("TransferSyntaxUID", ""))
    if not syntax:
        message = f"{path} names no transfer syntax, so its bytes have no meaning; export it again"
        raise FormatError(message)
    _check_order(path, syntax, head)
    with quietly(path, "reading its header"):
        header = pydicom.dcmread(path, stop_before_pixels=not pixels)
        _refuse_no_image(path, header)
        refuse_large(str(path), _announced(header), max(int(header.BitsAllocated) // 8, 4))
        _refuse_syntax(path, syntax)
    return header


def _refuse_other_kinds(path: Path) -> None:
    size = path.stat().st_size
    if not path.is_file() or not size:
        message = f"{path} is empty or no regular file; pass a DICOM file"
        raise FormatError(message)
    if not is_dicom(path):
        message = f"{path} is no DICOM file: it lacks the letters DICM at byte {MAGIC_AT}"
        raise FormatError(f"{message}; export it again, or move it out of the folder")


def _check_order(path: Path, syntax: str, head: Untyped) -> None:
    """Refuse a file whose bytes are in another order than its header says."""
    length = int(head.get("FileMetaInformationGroupLength", 0) or 0)
    with path.open("rb") as file:
        # The length counts from behind itself: preamble, magic, and an element of 12 bytes.
        file.seek(MAGIC_AT + 4 + 12 + length)
        first = file.read(2)
        if syntax == DEFLATED:
            file.seek(-len(first), 1)
            _refuse_bomb(path, file.read())
            return
    if not length or len(first) < 2:
        return
    order = ">" if syntax == "1.2.840.10008.1.2.2" else "<"
    other = "<" if order == ">" else ">"
    group, swapped = (struct.unpack(f"{each}H", first)[0] for each in (order, other))
    if group > 0xFF and swapped <= 0xFF:
        message = (
            f"{path} has its bytes in another order (endianness) than its transfer syntax says; "
            "export it again"
        )
        raise FormatError(message)


def _refuse_bomb(path: Path, packed: bytes) -> None:
    """Refuse a deflated file that unpacks to more than an image may have."""
    unpacking, size = zlib.decompressobj(-zlib.MAX_WBITS), 0
    with quietly(path, "unpacking it"):
        while packed:
            size += len(unpacking.decompress(packed, 2**24))
            packed = unpacking.unconsumed_tail
            if size > MOST_UNPACKED:
                break
    if size > MOST_UNPACKED:
        message = f"{path} unpacks to more than {MOST_UNPACKED:,} bytes; export it without deflate"
        raise FormatError(message)


def _refuse_no_image(path: Path, header: Untyped) -> None:
    kind = getattr(header.get("SOPClassUID", None), "name", "") or "unknown object"
    known = kind if kind[:1].isalpha() else "unknown object"
    if str(header.get("SOPClassUID", "")) in SEGMENTATIONS:
        message = f"{path} is a {known}: masks, not values; pass the images that it was drawn on"
        raise FormatError(message)
    wanted = ("Rows", "Columns", "BitsAllocated", "SamplesPerPixel", "PhotometricInterpretation")
    missing = [name for name in wanted if header.get(name, None) in (None, "", 0)]
    if missing:
        message = f"{path} is no image ({known}): it has no {', '.join(missing)}; pass image files"
        raise FormatError(message)


def _announced(header: Untyped) -> tuple[int, ...]:
    frames = int(header.get("NumberOfFrames", None) or 1)
    return frames, int(header.Rows), int(header.Columns), int(header.SamplesPerPixel)


def _refuse_syntax(path: Path, syntax: str) -> None:
    pydicom = library()
    uid = pydicom.uid.UID(syntax)
    if uid.is_transfer_syntax and not uid.is_encapsulated:
        return
    try:
        decoder = pydicom.pixels.get_decoder(uid)
    except NotImplementedError:
        decoder = None
    if decoder is None or not decoder.is_available:
        name = uid.name if uid.is_transfer_syntax else "private or unknown"
        message = (
            f"{path} is compressed by a transfer syntax that cannot be decoded here: {name}; pip "
            "install pylibjpeg pylibjpeg-libjpeg pylibjpeg-openjpeg, or export it uncompressed"
        )
        raise FormatError(message)
