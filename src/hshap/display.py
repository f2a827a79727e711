"""An explanation in a line of text, and in a notebook: no library but NumPy is needed."""

from __future__ import annotations

import base64
import struct
import zlib
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from hshap.audit import FAR

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from hshap.explanation import Explanation

LARGEST_SIDE = 512
SMALLEST_SIDE = 192
LONGEST = 200


def as_text(explanation: Explanation) -> str:
    """Say in a line what was found and what it cost."""
    grid = " x ".join(map(str, explanation.grid))
    leaves = explanation.leaves
    share = sum(leaf.size for leaf in leaves) / np.prod(explanation.grid)
    found = f"{_count(len(leaves), 'leaf', 'leaves')} on {share:.2%} of {grid}"
    cost = (
        f"{_count(len(explanation.games), 'game')}, "
        f"{_count(explanation.evaluations, 'evaluation')}, {explanation.seconds:.2f} s"
    )
    audit = explanation.audit
    end = f", OR gap {audit.gap:.2f}"
    if audit.gap >= FAR:
        end += ": parts act together, do not trust it alone"
    elif leaves and audit.doubt >= FAR:
        end += f": what was found carries only {audit.carried:.0%} of what the image adds"
    if not explanation.complete:
        end += f", incomplete: {len(explanation.unfinished)} unsplit"
    return f"target {explanation.target}, {found if leaves else 'nothing relevant'}, {cost}{end}"


def as_html(explanation: Explanation) -> str:
    """Show the map as a picture, with the line of text below, and how it was made on demand."""
    rows = "".join(
        f"<tr><th>{escape(str(name))}</th><td>{escape(_told(value))}</td></tr>"
        for name, value in explanation.settings.items()
    )
    made = f"<details><summary>settings</summary><table>{rows}</table></details>" if rows else ""
    return map_as_html(explanation.coefficients(), as_text(explanation), made)


def map_as_html(heat: NDArray[Any], text: str, more: str = "") -> str:
    """Show a map as a picture with a text below; `more` is markup that follows.

    >>> map_as_html(np.eye(2), "a < b")[-42:]
    '<figcaption>a &lt; b</figcaption></figure>'
    """
    data = base64.b64encode(png(_picture(heat))).decode()
    return (
        f'<figure style="margin:0"><img alt="{escape(text)}" style="image-rendering:pixelated" '
        f'src="data:image/png;base64,{data}"><figcaption>{escape(text)}{more}</figcaption></figure>'
    )


def png(pixels: NDArray[np.uint8], text: Mapping[str, str] | None = None) -> bytes:
    """Encode `(height, width, 3)`, or `(height, width)` in grey, as a PNG file.

    `text` is kept in the file, by Latin-1 keywords.

    >>> png(np.zeros((1, 1), np.uint8))[1:4]
    b'PNG'
    """
    height, width = pixels.shape[:2]
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)
    colour = 2 if pixels.ndim == 3 else 0
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        _chunk(kind, data)
        for kind, data in (
            (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)),
            *(
                (b"tEXt", f"{key}\0{value}".encode("latin-1"))
                for key, value in (text or {}).items()
            ),
            (b"IDAT", zlib.compress(lines.tobytes())),
            (b"IEND", b""),
        )
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    check = struct.pack(">I", zlib.crc32(kind + data))
    return struct.pack(">I", len(data)) + kind + data + check


def flat(heat: NDArray[Any]) -> NDArray[Any]:
    """Return a map as a plane: a signal as one line, a volume by its largest values."""
    if heat.ndim == 1:
        return heat[None]
    while heat.ndim > 2:
        # By magnitude, so that negative values are not lost behind zeros.
        places = np.abs(heat).argmax(axis=0)[None]
        heat = np.take_along_axis(heat, places, axis=0)[0]
    return heat


def _picture(heat: NDArray[Any]) -> NDArray[np.uint8]:
    """Colour a map: grey where it is 0, red above, blue below, framed so as never to be blank."""
    plane = flat(heat)
    step = max(1, -(-max(plane.shape) // LARGEST_SIDE))
    plane = largest_in_blocks(plane, step)
    scale = max(1, SMALLEST_SIDE // max(plane.shape))
    strength = plane / (np.abs(plane).max() or 1.0)
    colours = np.full((*plane.shape, 3), 238.0)
    ends = np.where(strength[..., None] > 0, (178.0, 24.0, 43.0), (33.0, 102.0, 172.0))
    colours += np.abs(strength)[..., None] * (ends - colours)
    pixels = colours.astype(np.uint8).repeat(scale, axis=0).repeat(scale, axis=1)
    return np.pad(pixels, ((1, 1), (1, 1), (0, 0)), constant_values=96)


def largest_in_blocks(plane: NDArray[Any], step: int) -> NDArray[Any]:
    """Shrink a map without losing single pixels.

    >>> largest_in_blocks(np.array([[0, 0, 5, 0], [0, -1, 0, 0]]), 2)
    array([[-1,  5]])
    """
    if step == 1:
        return plane
    height, width = plane.shape
    padded = np.pad(plane, ((0, -height % step), (0, -width % step)))
    tiles = padded.reshape(padded.shape[0] // step, step, padded.shape[1] // step, step)
    return flat(np.moveaxis(tiles, (1, 3), (0, 1)))


def _told(value: Any) -> str:
    """Say a setting in a line: recipes as they are written, and no more than fits."""
    if isinstance(value, dict) and "type" in value:
        options = (f"{name}={_told(one)}" for name, one in value.items() if name != "type")
        text = f"{value['type']}({', '.join(options)})"
    else:
        text = str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
