"""Small files made to cost a reader memory or time, as builders of bytes."""

from __future__ import annotations

import io
import re
import struct
import zlib
from functools import cache

from PIL import Image

# PNG


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width=64, height=64, before=(), after=()):
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress(bytes((3 * 64 + 1) * 64))
    parts = [chunk(b"IHDR", header), *before, chunk(b"IDAT", rows), *after, chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@cache
def deflated(size):
    return zlib.compress(bytes(size), 9)


def frame_control(number, width, height):
    return chunk(b"fcTL", struct.pack(">IIIIIHHBB", number, width, height, 0, 0, 1, 1, 0, 0))


def animated_png(frames, size):
    before = [chunk(b"acTL", struct.pack(">II", frames, 0)), frame_control(0, 64, 64)]
    data = chunk(b"fdAT", struct.pack(">I", 2) + deflated(1000))
    return png(before=before, after=[frame_control(1, size, size), data])


# TIFF


def directory(width, height, compression=1, *more):
    """Return the tags of a grey page: number, type, count, value."""
    tags = [(256, 4, 1, width), (257, 4, 1, height), (258, 3, 1, 8), (259, 3, 1, compression)]
    return sorted([*tags, (262, 3, 1, 1), (277, 3, 1, 1), *more])


def strip(height, offset=8, size=64):
    return (273, 4, 1, offset), (278, 4, 1, height), (279, 4, 1, size)


def tiff(*pages, data=b""):
    """Return a TIFF of pages in a row; `data` starts at byte 512."""
    out = bytearray(b"II*\0" + struct.pack("<I", 8))
    for number, tags in enumerate(pages):
        out += struct.pack("<H", len(tags))
        out += b"".join(struct.pack("<HHII", *tag) for tag in tags)
        out += struct.pack("<I", 0 if number == len(pages) - 1 else len(out) + 4)
    return bytes(out.ljust(512, b"\0")) + data


# JPEG and JPEG 2000


def scans(side, count):
    """Return a progressive JPEG whose last scan is there `count` times."""
    out = io.BytesIO()
    Image.new("L", (side, side)).save(out, "JPEG", progressive=True)
    data = out.getvalue()
    last = [found.start() for found in re.finditer(b"\xff\xda", data)][-1]
    return data[:-2] + data[last:-2] * (count - 1) + b"\xff\xd9"


def jpeg2000(width, height, *, tile=None, precinct=None, levels=1, components=3):
    """Return a codestream that announces other sizes than it has."""
    out = io.BytesIO()
    options = {"no_jp2": True, "num_resolutions": levels}
    if precinct is not None:
        options["precinct_size"] = (128, 128)
    Image.new("RGB", (64, 64)).save(out, "JPEG2000", **options)
    data = bytearray(out.getvalue())
    siz = data.index(b"\xff\x51")
    data[siz + 6 : siz + 14] = struct.pack(">II", width, height)
    data[siz + 22 : siz + 30] = struct.pack(">II", *(tile or (width, height)))
    data[siz + 38 : siz + 40] = struct.pack(">H", components)
    if precinct is not None:
        cod = data.index(b"\xff\x52")
        end = cod + 2 + int.from_bytes(data[cod + 2 : cod + 4], "big")
        data[cod + 14 : end] = bytes([precinct]) * (end - cod - 14)
    return bytes(data)


def with_settings_of_a_tile(data):
    """Move the settings of code blocks into the header of the tile, too."""
    cod = data.index(b"\xff\x52")
    settings = data[cod : cod + 2 + int.from_bytes(data[cod + 2 : cod + 4], "big")]
    sot = data.index(b"\xff\x90")
    length = int.from_bytes(data[sot + 6 : sot + 10], "big") + len(settings)
    head = data[sot : sot + 6] + struct.pack(">I", length) + data[sot + 10 : sot + 12]
    return data[:sot] + head + settings + data[sot + 12 :]


# Others


def gif(*frames):
    """Return a GIF of 8 x 8 whose frames have these sizes."""
    head = b"GIF89a" + struct.pack("<HH", 8, 8) + b"\x80\0\0" + bytes(6)
    pixels = b"\x02\x0a\x84\x8f\xa9\xcb\xed\x0f\xa3\x9c\xb4\x05\x00"
    parts = [
        b"," + struct.pack("<HHHH", 0, 0, width, height) + b"\0" + pixels
        for width, height in frames
    ]
    return head + b"".join(parts) + b";"


def webp(kind, body):
    body = body.ljust(1000, b"\0")
    return (
        b"RIFF" + struct.pack("<I", 12 + len(body)) + b"WEBP" + kind + struct.pack("<I", 10) + body
    )


def bmp(width, height):
    """Return a BMP in run-length coding, with runs that skip 255 lines."""
    head = struct.pack("<IHHI", 0, 0, 0, 54 + 1024)
    sizes = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, 1, 0, 0, 0, 0, 0)
    return b"BM" + head + sizes + bytes(1024) + b"\0\2\xff\xff" * 100


CANVAS = bytes([2, 0, 0, 0]) + struct.pack("<I", 15999)[:3] * 2
LOSSLESS = b"\x2f" + struct.pack("<I", 16383 | 16383 << 14)
BOMBS = {
    # name: (builder, frame, a part of the message; empty if it is read)
    "pixels.png": (lambda: png(40_000, 40_000), None, "1600000000 pixels, more than 10000000"),
    "text.png": (
        lambda: png(before=[chunk(b"zTXt", b"a\0\0" + deflated(50_000_000))]),
        None,
        "too large",
    ),
    "texts.png": (
        lambda: png(before=[chunk(b"zTXt", b"a%d\0\0" % i + deflated(10**6)) for i in range(90)]),
        None,
        "Too much memory used in text chunks",
    ),
    "international.png": (
        lambda: png(before=[chunk(b"iTXt", b"a\0\1\0\0\0" + deflated(50_000_000))]),
        None,
        "too large",
    ),
    "profile.png": (
        lambda: png(before=[chunk(b"iCCP", b"a\0\0" + deflated(50_000_000))]),
        None,
        "too large",
    ),
    "length.png": (
        lambda: png(before=[struct.pack(">I", 2**31 - 1) + b"tEXt"]),
        None,
        "damaged or cut short",
    ),
    "chunks.png": (lambda: png(before=[chunk(b"abCd", b"")] * 60_000), None, ""),
    "trailing.png": (lambda: png(after=[chunk(b"abCd", b"")] * 60_000), None, ""),
    "frames.png": (lambda: animated_png(2**31 - 1, 64), None, "has 2147483647 frames"),
    "last-frame.png": (lambda: animated_png(2**31 - 1, 64), 2**30, "damaged or cut short"),
    "frame.png": (lambda: animated_png(2, 40_000), 1, "damaged or cut short"),
    "frames.gif": (lambda: gif(*[(8, 8)] * 40_000), None, "has 40000 frames"),
    "frame.gif": (lambda: gif((8, 8), (65_535, 65_535)), 1, "pixels"),
    "first-frame.gif": (lambda: gif((65_535, 65_535)), None, "4294836225 pixels"),
    "late-frame.gif": (lambda: gif((8, 8), (12_000, 12_000), (8, 8)), 2, "144000000 pixels"),
    "pixels.tif": (lambda: tiff(directory(40_000, 40_000, 1, *strip(40_000))), None, "1600000000"),
    "page.tif": (
        lambda: tiff(directory(8, 8, 1, *strip(8)), directory(40_000, 40_000, 1, *strip(40_000))),
        1,
        "1600000000 pixels, more than",
    ),
    "pages.tif": (
        lambda: tiff(directory(8, 8, 1, *strip(8)), *[()] * 8_000),
        None,
        "damaged or cut short",
    ),
    "last-page.tif": (
        lambda: tiff(directory(8, 8, 1, *strip(8)), *[()] * 8_000),
        7_900,
        "damaged or cut short",
    ),
    "tile.tif": (
        lambda: tiff(
            directory(64, 64, 8, (322, 4, 1, 46_000), (323, 4, 1, 46_000), (324, 4, 1, 512)),
            data=deflated(10**7),
        ),
        None,
        "damaged or cut short",
    ),
    "strips.tif": (
        lambda: tiff(directory(64, 64, 1, (273, 4, 4_000_000, 512), (278, 4, 1, 1))),
        None,
        "is not an image that can be read",
    ),
    "tags.tif": (
        lambda: tiff([*directory(64, 64, 1), *((n, 3, 1, 0) for n in range(1000, 3000))]),
        None,
        "is not an image that can be read",
    ),
    "twice.tif": (
        lambda: tiff([(256, 4, 1, 40_000), *directory(8, 8, 1, *strip(8))]),
        None,
        "damaged or cut short",
    ),
    "scans.tif": (
        lambda: tiff(directory(3000, 3000, 7, *strip(3000, 512, 40_000)), data=scans(3000, 120)),
        None,
        "damaged or cut short",
    ),
    "lzma.tif": (
        lambda: tiff(directory(64, 64, 34_925, *strip(64, 512))),
        None,
        "damaged or cut short",
    ),
    "scans.jpg": (lambda: scans(3000, 300), None, ""),
    "pixels.jp2": (lambda: jpeg2000(40_000, 40_000), None, "1600000000 pixels, more than"),
    "tiles.jp2": (lambda: jpeg2000(255, 257, tile=(1, 1)), None, "damaged or cut short"),
    "precincts.jp2": (lambda: jpeg2000(3000, 3000, precinct=0x22), None, "damaged or cut short"),
    "levels.jp2": (
        lambda: jpeg2000(3000, 3000, precinct=0x11, levels=6),
        None,
        "damaged or cut short",
    ),
    "components.jp2": (
        lambda: jpeg2000(64, 64, components=16_384),
        None,
        "is not an image that can be read",
    ),
    "tile-settings.jp2": (
        lambda: with_settings_of_a_tile(jpeg2000(64, 64)),
        None,
        "",
    ),
    "canvas.webp": (lambda: webp(b"VP8X", CANVAS), None, "damaged or cut short"),
    "lossless.webp": (lambda: webp(b"VP8L", LOSSLESS), None, "damaged or cut short"),
    "pixels.ppm": (lambda: b"P6 4000000000 4000000000 255\n", None, "pixels, more than"),
    "white.ppm": (lambda: b"P6 3000 3000 7\n" + bytes(99), None, "not enough image data"),
    "plain.ppm": (lambda: b"P3 3000 3000 7\n1 1", None, "not enough image data"),
    "bits.ppm": (lambda: b"P1 3000 3000\n1", None, "not enough image data"),
    "comment.ppm": (lambda: b"P6 #" + b"a" * 300_000, None, "damaged or cut short"),
    "pixels.bmp": (lambda: bmp(40_000, 40_000), None, "1600000000 pixels, more than"),
}
