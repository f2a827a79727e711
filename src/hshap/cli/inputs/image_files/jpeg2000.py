"""JPEG 2000 files, checked before their decoder takes memory.

The decoder takes memory for every tile and code block that the header announces. A file of 200
bytes can announce enough of them for 8 GB, in an image that is not large.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from hshap.cli.inputs.image_files.announced import expect

if TYPE_CHECKING:
    from typing import IO

MOST_TILES = 4_096
MOST_BLOCKS = 2_000_000
MOST_PACKETS = 100_000_000
MOST_COMPONENTS = 4

# Markers of JPEG 2000 (ISO/IEC 15444-1, annex A).
SIZ, COD, COC, SOT, SOD, EOC = 0xFF51, 0xFF52, 0xFF53, 0xFF90, 0xFF93, 0xFFD9
MAIN_MARKERS = {0xFF50, COD, COC, 0xFF55, 0xFF57, *range(0xFF5C, 0xFF61), 0xFF63, 0xFF64}
TILE_MARKERS = {0xFF58, 0xFF5C, 0xFF5D, 0xFF5E, 0xFF5F, 0xFF61, 0xFF64}


def check(file: IO[bytes]) -> None:
    """Refuse a JPEG 2000 whose tiles and code blocks take far more memory than its pixels."""
    _to_codestream(file)
    expect(_number(file, 4) == 0xFF4F_0000 | SIZ, "it holds no picture")
    sizes = struct.Struct(">H8IH")
    body = _body(file)
    expect(len(body) >= sizes.size, "it ends within its header")
    _, x, y, left, top, wide, high, tiles_left, tiles_top, components = sizes.unpack(
        body[: sizes.size]
    )
    expect(x > left and y > top and wide and high, "it has no pixels")
    expect(x > tiles_left and y > tiles_top, "its tiles lie beside it")
    expect(1 <= components <= MOST_COMPONENTS, f"it has {components} components")
    tiles = -(-(x - tiles_left) // wide) * -(-(y - tiles_top) // high)
    expect(tiles <= MOST_TILES, f"it has {tiles} tiles, more than {MOST_TILES}")
    tile = min(wide, x - left), min(high, y - top)
    while (marker := _number(file, 2)) != SOT:
        # Decoders skip other markers in ways of their own.
        expect(marker in MAIN_MARKERS, f"marker {marker:#x} is not supported")
        body = _body(file)
        if marker == COD:
            expect(len(body) >= 9, "it ends within its header")
            layers = int.from_bytes(body[2:4], "big")
            _check_blocks(body[0], body[5:], tile, components * layers, components)
        elif marker == COC:
            expect(len(body) >= 7, "it ends within its header")
            _check_blocks(body[1], body[2:], tile, components, components)
    _check_tile_parts(file)


def bits(file: IO[bytes]) -> int:
    """Return the largest number of bits in a component of a file that `check` has passed."""
    _to_codestream(file)
    file.read(4)
    return max(size % 128 + 1 for size in _body(file)[36::3])


def _to_codestream(file: IO[bytes]) -> None:
    """Go to the first byte of the picture in a file of boxes; a bare picture starts at once."""
    file.seek(0)
    if _number(file, 4) == 0xFF4F_0000 | SIZ:
        file.seek(0)
        return
    at = 0
    while True:
        file.seek(at)
        length, kind = _number(file, 4), file.read(4)
        start = at + 8
        if length == 1:
            length, start = _number(file, 8), at + 16
        if kind == b"jp2c":
            file.seek(start)
            return
        expect(length >= 8, "a box has no length")
        at += length
        expect(at < 2**63, "a box reaches beyond the end")


def _check_blocks(
    style: int, body: bytes, tile: tuple[int, int], entries: int, components: int
) -> None:
    """Refuse more code blocks in a tile, or packets, than memory should be taken for."""
    levels, logs = body[0], (body[1] % 16 + 2, body[2] % 16 + 2)
    expect(levels <= 32, f"it has {levels} levels")
    precincts = body[5:].ljust(levels + 1, b"\0") if style & 1 else b"\xff" * (levels + 1)
    blocks = 0
    for level, precinct in enumerate(precincts[: levels + 1]):
        count = components
        for side, log, own in zip(tile, logs, (precinct % 16, precinct // 16), strict=True):
            length = -(-side // 2 ** (levels - level))
            count *= -(-length // 2 ** min(log, max(own - bool(level), 0)))
        blocks += count
    expect(blocks <= MOST_BLOCKS, f"a tile has {blocks} code blocks, more than {MOST_BLOCKS}")
    packets = blocks // components * entries * (levels + 1)
    expect(packets <= MOST_PACKETS, f"a tile has {packets} packets, more than {MOST_PACKETS}")


def _check_tile_parts(file: IO[bytes]) -> None:
    """Refuse tiles that change the sizes of code blocks; the file is behind the first marker."""
    while True:
        start = file.tell() - 2
        body = _body(file)
        expect(len(body) == 8, "a tile has no length")
        length = int.from_bytes(body[2:6], "big")
        while (marker := _number(file, 2)) != SOD:
            expect(marker in TILE_MARKERS, f"marker {marker:#x} of a tile is not supported")
            _body(file)
        if not length:  # the last tile ends with the file
            return
        expect(length >= 14, "a tile has no length")
        file.seek(start + length)
        following = file.read(2)
        if len(following) < 2 or int.from_bytes(following, "big") == EOC:
            return
        expect(int.from_bytes(following, "big") == SOT, "a tile has another length than it says")


def _body(file: IO[bytes]) -> bytes:
    length = _number(file, 2)
    expect(length >= 2, "a marker has no length")
    body = file.read(length - 2)
    expect(len(body) == length - 2, "it ends within its header")
    return body


def _number(file: IO[bytes], length: int) -> int:
    data = file.read(length)
    expect(len(data) == length, "it ends within its header")
    return int.from_bytes(data, "big")
