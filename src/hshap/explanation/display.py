"""An explanation in a few lines of text, and in a notebook: no library but NumPy is needed."""

from __future__ import annotations

import base64
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from hshap._util.raster import as_plane, largest_in_blocks, png
from hshap.explanation.guarantees.calibration import marked_area

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hshap._util.types import Array
    from hshap.explanation.explanation import Explanation

LARGEST_SIDE = 512
SMALLEST_SIDE = 192
LONGEST = 200
MOST_CONCERNS = 3
HALF = 0.5


def as_text(explanation: Explanation) -> str:
    """Return one line: findings, cost and provenance."""
    grid = " x ".join(map(str, explanation.grid))
    leaves = explanation.leaves
    share = sum(leaf.area for leaf in leaves) / np.prod(explanation.grid)
    found = f"{_count(len(leaves), 'leaf', 'leaves')} on {share:.2%} of {grid}"
    cost = (
        f"{_count(len(explanation.games), 'game')}, "
        f"{_count(explanation.evaluations, 'evaluation')}, {explanation.seconds:.2f} s"
    )
    end = f", OR gap {explanation.audit.gap:.2f}"
    if explanation.certificate is not None:
        made = explanation.certificate
        end += f", {made.word}, {_count(made.inferred, 'game')} inferred"
    if not explanation.complete:
        end += f", incomplete: {len(explanation.unfinished)} unsplit"
    if explanation.provenance.is_told:
        end += f"; {explanation.provenance.sentence}"
    name = explanation.settings.source.get("class")
    target = f"target {explanation.target}" + (f" ({name})" if name else "")
    if explanation.negative and not explanation.is_explained:
        told = f"negative, not explained: {explanation.negative}"
        return _printable(f"{target}, {told}; {_count(explanation.evaluations, 'evaluation')}")
    return _printable(f"{target}, {found if leaves else 'nothing relevant'}, {cost}{end}")


def heading(explanation: Explanation) -> str:
    """Return the title of a picture: class, probability where it is known, and findings.

    >>> from hshap.demo import example
    >>> heading(example())
    'class 0, 100 %: 1 finding'
    """
    if not explanation.is_explained:
        return f"{subject(explanation)}: negative, not explained"
    found = len(explanation.boxes(original=False))
    return f"{subject(explanation)}: {_count(found, 'finding') if found else 'nothing relevant'}"


def subject(explanation: Explanation) -> str:
    """Return the explained class, by its name if it is known, and its probability."""
    index = explanation.class_index
    usual = str(explanation.target) if index is None else f"class {index}"
    name = _printable(explanation.class_name or usual)
    chance = explanation.probability
    return name if chance is None else f"{name}, {_percent(chance)}"


def _percent(share: float) -> str:
    """Return a share in percent; only those that are whole ones to the eye are rounded to them.

    >>> _percent(0.934), _percent(0.003), _percent(0.99996), _percent(1.0)
    ('93 %', '0.3 %', '>99.9 %', '100 %')
    """
    if 0.01 <= share <= 0.99 or share in {0.0, 1.0}:
        return f"{share:.0%}"[:-1] + " %"
    if 0.001 <= share <= 0.999:
        return f"{100 * share:.1f} %"
    return "<0.1 %" if share < HALF else ">99.9 %"


def as_lines(explanation: Explanation) -> str:
    """Return the line of `as_text`, one for the choices of the run, and its concerns, if any."""
    return "\n  ".join([as_text(explanation), *_remarks(explanation)])


def _remarks(explanation: Explanation) -> list[str]:
    chosen, concerns = explanation.settings.chosen, explanation.concerns
    lines = [f"chosen: {chosen}"] if chosen else []
    if explanation.negative and explanation.is_explained:
        lines.append(
            f"negative: the model does not decide for this target ({explanation.negative})"
        )
    if explanation.calibration is not None:
        lines.append(
            f"marked area: {marked_area(explanation).mean():.2%} of the image; "
            f"{explanation.calibration}"
        )
    lines += [str(explanation.how_sure)] if concerns else []
    lines += [f"also: {concern}" for concern in concerns[1:MOST_CONCERNS]]
    if len(concerns) > MOST_CONCERNS:
        lines.append(f"and {_count(len(concerns) - MOST_CONCERNS, 'more concern')}")
    return [_printable(line) for line in lines]


def as_html(explanation: Explanation) -> str:
    """Return the map as a picture, with the lines of text and the settings below."""
    rows = "".join(
        f"<tr><th>{escape(_printable(str(name)))}</th><td>{escape(_printable(_told(value)))}</td></tr>"
        for name, value in explanation.settings.items()
    )
    made = f"<details><summary>settings</summary><table>{rows}</table></details>" if rows else ""
    remarks = "".join(f"<br>{escape(line)}" for line in _remarks(explanation))
    return map_as_html(explanation.attribution(), as_text(explanation), remarks + made)


def map_as_html(heat: Array, text: str, more: str = "") -> str:
    """Return a map as a picture with a text below; `more` is markup that follows the text.

    >>> map_as_html(np.eye(2), "a < b")[-42:]
    '<figcaption>a &lt; b</figcaption></figure>'
    """
    data = base64.b64encode(png(_picture(heat))).decode()
    return (
        f'<figure style="margin:0"><img alt="{escape(text)}" style="image-rendering:pixelated" '
        f'src="data:image/png;base64,{data}"><figcaption>{escape(text)}{more}</figcaption></figure>'
    )


def _picture(heat: Array) -> NDArray[np.uint8]:
    """Colour a map: grey where it is 0, red above, blue below, framed so as never to be blank."""
    plane = as_plane(heat)
    step = max(1, -(-max(plane.shape) // LARGEST_SIDE))
    plane = largest_in_blocks(plane, step)
    scale = max(1, SMALLEST_SIDE // max(plane.shape))
    strength = plane / (np.abs(plane).max() or 1.0)
    colours = np.full((*plane.shape, 3), 238.0)
    ends = np.where(strength[..., None] > 0, (178.0, 24.0, 43.0), (33.0, 102.0, 172.0))
    colours += np.abs(strength)[..., None] * (ends - colours)
    pixels = colours.astype(np.uint8).repeat(scale, axis=0).repeat(scale, axis=1)
    return np.pad(pixels, ((1, 1), (1, 1), (0, 0)), constant_values=96)


def _told(value: object) -> str:
    """Return a setting in one line, recipes as they are written in Python; long ones are cut."""
    if isinstance(value, dict) and "type" in value:
        options = (f"{name}={_told(one)}" for name, one in value.items() if name != "type")
        text = f"{value['type']}({', '.join(options)})"
    else:
        text = str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _printable(text: str) -> str:
    """Return a line for the terminal: the name of a target may come from a file."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
