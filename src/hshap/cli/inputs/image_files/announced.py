"""Sizes that an image file announces, checked before a decoder takes memory or time for them.

Few bytes can announce tiles larger than the image, millions of strips, or pages without end.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

MOST_PAGES = 20_000
"""pillow's time for a page grows with its number squared; this many take a second."""

MOST_TAGS = 1_000
MOST_STRIPS = 200_000
COMPRESSIONS = {
    1: "none",
    2: "CCITT",
    3: "CCITT group 3",
    4: "CCITT group 4",
    5: "LZW",
    7: "JPEG",
    8: "deflate",
    32773: "PackBits",
    32946: "deflate",
    50000: "Zstandard",
    50001: "WebP",
}
"""Compressions of a TIFF that may reach a decoder; rare and obsolete ones may not."""


class ImplausibleError(Exception):
    """A file announces something that no usual image has; says which."""


def expect(condition: object, fault: str) -> None:
    """Refuse a file for a fault unless the condition holds."""
    if not condition:
        raise ImplausibleError(fault)


def scans(file: IO[bytes]) -> int:
    """Return the number of starts of JPEG scans in a file; each is a pass over all its pixels."""
    file.seek(0)
    count, last = 0, b""
    while data := file.read(2**20):
        count += (last + data).count(b"\xff\xda")
        last = data[-1:]
    return count


def webp_size(file: IO[bytes]) -> tuple[int, int]:
    """Return the width and height of a WebP; its decoder takes memory for them at once."""
    file.seek(12)
    data = file.read(18)
    expect(len(data) >= 13, "it ends within its header")
    kind, data = data[:4], data[8:].ljust(10, b"\0")
    if kind == b"VP8X":
        wide, high = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (4, 7))
    elif kind == b"VP8L":
        bits = int.from_bytes(data[1:5], "little")
        wide, high = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    else:
        expect(kind == b"VP8 ", "it holds no picture")
        wide, high = (int.from_bytes(data[at : at + 2], "little") & 0x3FFF for at in (6, 8))
    return wide, high


class TiffPage(NamedTuple):
    """The sizes that a page of a TIFF announces; `unit` is the size of a tile or strip."""

    size: tuple[int, int]
    unit: tuple[int, int]
    compression: int


def tiff_page(file: IO[bytes], number: int) -> TiffPage:
    """Return the sizes of a page; the last page if there are fewer, so that the decoder tells."""
    chosen = 0
    for place, offset in enumerate(_tiff_pages(file)):
        chosen = offset
        if place >= number:
            break
    return _tiff_sizes(file, chosen)


def tiff_count(file: IO[bytes]) -> int:
    """Return the number of pages of a TIFF."""
    return sum(1 for _ in _tiff_pages(file))


class _Layout(NamedTuple):
    """Byte order of a TIFF, and how it stores a number of tags, an entry and an offset."""

    order: str
    tags: str
    entry: str
    offset: str

    def unpack(self, kind: str, data: bytes) -> tuple[int, ...]:
        form = struct.Struct(self.order + kind)
        expect(len(data) >= form.size, "it ends within its list of tags")
        return form.unpack(data[: form.size])

    def length(self, kind: str) -> int:
        return struct.calcsize(self.order + kind)


def _tiff_layout(file: IO[bytes]) -> tuple[_Layout, int]:
    file.seek(0)
    head = file.read(16)
    order = "<" if head.startswith(b"II") else ">"
    if head[2:4] == b"+\0":
        layout, at = _Layout(order, "Q", "HHQ", "Q"), 8
    else:
        layout, at = _Layout(order, "H", "HHI", "I"), 4
    return layout, layout.unpack(layout.offset, head[at:])[0]


def _tiff_pages(file: IO[bytes]) -> Iterator[int]:
    layout, offset = _tiff_layout(file)
    seen = set[int]()
    while offset and offset not in seen:
        expect(len(seen) < MOST_PAGES, f"it has more than {MOST_PAGES} pages")
        expect(offset < 2**63, "a page lies beyond the end")
        yield offset
        seen.add(offset)
        file.seek(offset)
        (count,) = layout.unpack(layout.tags, file.read(layout.length(layout.tags)))
        expect(count <= MOST_TAGS, f"a page has {count} tags")
        entry = layout.length(layout.entry) + layout.length(layout.offset)
        file.seek(count * entry, 1)
        following = file.read(layout.length(layout.offset))
        # pillow reads the last page of a file that ends here.
        offset = layout.unpack(layout.offset, following)[0] if following else 0


def _tiff_sizes(file: IO[bytes], offset: int) -> TiffPage:
    layout, _ = _tiff_layout(file)
    file.seek(offset)
    (count,) = layout.unpack(layout.tags, file.read(layout.length(layout.tags)))
    expect(count <= MOST_TAGS, f"a page has {count} tags")
    found: dict[int, int] = {}
    for _ in range(count):
        tag, kind, length = layout.unpack(layout.entry, file.read(layout.length(layout.entry)))
        value = file.read(layout.length(layout.offset))
        if tag in (273, 324):  # places of strips or tiles
            expect(length <= MOST_STRIPS, f"a page has {length} strips or tiles")
        elif tag in (256, 257, 259, 278, 322, 323):
            expect(tag not in found, f"tag {tag} is there twice")  # decoders differ in their choice
            expect(kind in (3, 4, 16) and length == 1, f"tag {tag} is no whole number")
            found[tag] = layout.unpack({3: "H", 4: "I", 16: "Q"}[kind], value)[0]
    expect(256 in found and 257 in found, "it has no width or height")
    wide, high = found[256], found[257]
    compression = found.get(259, 1)
    expect(compression in COMPRESSIONS, f"its compression {compression} is not supported")
    if 322 in found or 323 in found:
        unit = found.get(322, wide), found.get(323, high)
    else:
        unit = wide, min(found.get(278, high), high)
    return TiffPage((wide, high), unit, compression)
