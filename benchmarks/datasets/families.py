"""Draw families of drawings: strokes, sizes, contrast, noise, texture, light and JPEG.

An image holds `n` targets of one kind and shapes of other kinds. The truth is exact: the pixels
that a target covers by at least a half. `FAMILIES` is the table of all families, and says which
half each belongs to: constants of the method are chosen on one half and judged on the other. The
halves share neither a kind of target nor, where a style has levels, a level.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks.datasets.synthetic import to_bytes, to_float

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.random import Generator
    from numpy.typing import NDArray

    Cover = NDArray[np.float64]
    Truth = NDArray[np.bool_]

HEIGHT, WIDTH = 100, 120
TARGETS = ("x", "plus", "t", "ring", "star")
OTHERS = ("disc", "square", "triangle", "diamond", "bar", "frame")
FINE = 4  # samples a side of each pixel, for coverage
THINNEST = 5.0  # a shape is at least so many strokes wide, or it is a blob
LEAST = {"star": 9}  # five rays on fewer pixels are a blob as well
SNR = 6.0  # the least contrast, in standard deviations of the noise
GAP = 2  # pixels between the boxes of shapes that do not touch
TRIES = 60


@dataclass(frozen=True)
class Style:
    """How an image is drawn; pairs are ranges, drawn from evenly."""

    stroke: tuple[int, int] = (2, 3)
    size: tuple[int, int] = (12, 24)
    smooth: bool = False  # anti-aliased
    contrast: tuple[float, float] = (0.4, 0.8)
    noise: tuple[float, float] = (0.0, 0.0)  # standard deviation, of 255
    texture: float = 0.0  # amplitude of waves in the background
    light: float = 0.0  # how much darker the darkest place is, as a share
    quality: int = 0  # of JPEG; 0 is none
    touching: bool = False  # each target touches another shape


@dataclass(frozen=True)
class Family:
    """A style and the kinds of targets it is drawn with."""

    name: str
    style: Style
    kinds: tuple[str, ...]


CHOOSING, JUDGING = ("x", "ring"), ("plus", "t", "star")

FAMILIES: dict[str, tuple[Family, ...]] = {
    "choosing": tuple(
        Family(name, style, CHOOSING)
        for name, style in {
            "stroke 1": Style(stroke=(1, 1)),
            "stroke 3": Style(stroke=(3, 3), size=(15, 24)),
            "size 6 to 9": Style(stroke=(1, 1), size=(6, 9)),
            "size 28 to 40": Style(stroke=(1, 4), size=(28, 40)),
            "anti-aliased, stroke 1": Style(stroke=(1, 1), smooth=True),
            "anti-aliased, stroke 3": Style(stroke=(3, 3), size=(15, 24), smooth=True),
            "touching": Style(stroke=(1, 3), touching=True),
            "contrast 0.2 to 0.25": Style(stroke=(1, 3), contrast=(0.2, 0.25)),
            "noise 8": Style(stroke=(1, 3), noise=(8, 8)),
            "noise 16": Style(stroke=(1, 3), noise=(16, 16)),
            "texture 0.06": Style(stroke=(1, 3), texture=0.06),
            "light 0.4": Style(stroke=(1, 3), light=0.4),
            "JPEG 70": Style(stroke=(1, 3), quality=70, smooth=True),
        }.items()
    ),
    "judging": tuple(
        Family(name, style, JUDGING)
        for name, style in {
            "stroke 1": Style(stroke=(1, 1)),
            "stroke 2": Style(stroke=(2, 2)),
            "stroke 4": Style(stroke=(4, 4), size=(20, 28)),
            "size 6 to 9": Style(stroke=(1, 1), size=(6, 9)),
            "size 28 to 40": Style(stroke=(1, 4), size=(28, 40)),
            "anti-aliased, stroke 1": Style(stroke=(1, 1), smooth=True),
            "anti-aliased, stroke 2": Style(stroke=(2, 2), smooth=True),
            "anti-aliased, stroke 4": Style(stroke=(4, 4), size=(20, 28), smooth=True),
            "touching": Style(stroke=(1, 4), touching=True),
            "contrast 0.15 to 0.2": Style(stroke=(1, 3), contrast=(0.15, 0.2)),
            "noise 12": Style(stroke=(1, 3), noise=(12, 12)),
            "noise 24": Style(stroke=(1, 3), noise=(24, 24)),
            "texture 0.1": Style(stroke=(1, 3), texture=0.1),
            "light 0.6": Style(stroke=(1, 3), light=0.6),
            "JPEG 50": Style(stroke=(1, 3), quality=50, smooth=True),
            "all at once": Style(
                stroke=(1, 4),
                size=(8, 40),
                smooth=True,
                noise=(4, 8),
                texture=0.04,
                light=0.3,
                quality=85,
            ),
        }.items()
    ),
}


class Shape(NamedTuple):
    """A shape: its kind, its first row and column, and how much of each pixel it covers.

    A hidden shape was replaced by the clean background.
    """

    kind: str
    top: int
    left: int
    cover: Cover
    hidden: bool = False

    @property
    def index(self) -> tuple[slice, slice]:
        rows, columns = self.cover.shape
        return slice(self.top, self.top + rows), slice(self.left, self.left + columns)


@dataclass(frozen=True, eq=False)
class Sample:
    """One image (3, 100, 120), its background alone, and its shapes in the order of painting."""

    image: NDArray[np.float32]
    ground: NDArray[np.float32]
    shapes: tuple[Shape, ...]

    def truth(self, kind: str) -> Truth:
        """Return the pixels that shapes of a kind cover by a half or more."""
        out = np.zeros((HEIGHT, WIDTH), dtype=bool)
        for shape in self.shapes:
            # Shapes do not overlap, so the order of painting does not matter.
            if shape.kind == kind and not shape.hidden:
                out[shape.index] |= shape.cover >= 0.5
        return out

    def count(self, kind: str) -> int:
        return sum(shape.kind == kind and not shape.hidden for shape in self.shapes)


def example(family: Family, targets: int, seed: int) -> tuple[Sample, str]:
    """Return an image of a family with so many targets of one kind, and the kind."""
    kind = family.kinds[seed % len(family.kinds)]
    rng = np.random.default_rng([seed, targets, *"".join((family.name, *family.kinds)).encode()])
    while True:
        sample = draw(rng, family.style, (kind,) * targets, others=int(rng.integers(1, 5)))
        if sample.count(kind) == targets:
            return sample, kind


def draw(  # noqa: PLR0913, each says something else about the image
    rng: Generator,
    style: Style,
    kinds: Sequence[str],
    *,
    others: int,
    hidden: Sequence[str] = (),
    outlines: bool = False,
    strange: Sequence[str] = (),
) -> Sample:
    """Draw an image with a target of each of `kinds`, and so many other shapes.

    Shapes of the kinds `hidden` are drawn and then replaced by the clean background, as a game
    does it; with `outlines`, pixels that they cover by less than a half stay. `strange` kinds are
    drawn among the other shapes. A shape that finds no room is left out.
    """
    noise = rng.uniform(*style.noise) / 255
    shapes: list[Shape] = []
    for kind in kinds:
        shapes += _placed(rng, style, kind, shapes, touching=style.touching)
    for kind in hidden:
        shapes += [shape._replace(hidden=True) for shape in _placed(rng, style, kind, shapes)]
    for _ in range(others):
        shapes += _placed(rng, style, str(rng.choice([*OTHERS, *strange])), shapes)
    base = _colour(rng)
    ground = base[:, None, None] + _texture(rng, style.texture)
    canvas, light = ground.copy(), _light(rng, style.light)
    for shape in shapes:
        tint = _tint(rng, base, [max(level, SNR * noise) for level in style.contrast])
        patch = canvas[(slice(None), *shape.index)]
        patch += (tint[:, None, None] - patch) * (
            shape.cover if style.smooth else shape.cover >= 0.5
        )
    clean = to_float(to_bytes(ground * light))
    image = canvas * light + rng.normal(0, 1, canvas.shape) * noise
    image = to_float(_compressed(to_bytes(image), style.quality))
    for shape in shapes:
        if shape.hidden:
            hole = (slice(None), *shape.index)
            gone = shape.cover >= 0.5 if outlines else shape.cover > 0
            image[hole] = np.where(gone, clean[hole], image[hole])
    return Sample(image, clean, tuple(shapes))


def any_style(rng: Generator) -> Style:
    """Return a style with every attribute drawn by itself, for training."""
    return Style(
        stroke=(1, 4),
        size=((6, 12), (12, 24), (24, 40))[rng.choice(3, p=(0.35, 0.45, 0.2))],
        smooth=bool(rng.random() < 0.5),
        contrast=((0.15, 0.25), (0.25, 0.9))[int(rng.random() < 0.7)],
        # Each of the rest is rare: all at once would hide the shapes.
        noise=(0, 24) if rng.random() < 0.4 else (0, 0),
        texture=float(rng.uniform(0, 0.1)) if rng.random() < 0.3 else 0.0,
        light=float(rng.uniform(0, 0.6)) if rng.random() < 0.3 else 0.0,
        quality=int(rng.integers(50, 95)) if rng.random() < 0.25 else 0,
        touching=bool(rng.random() < 0.2),
    )


def _placed(
    rng: Generator, style: Style, kind: str, shapes: Sequence[Shape], *, touching: bool = False
) -> list[Shape]:
    """Return a shape where there is room, after the one that it touches; none without room."""
    low, high = style.size
    for tried in range(TRIES):
        # The more tries fail, the smaller the shape: six of 40 pixels do not fit.
        size = max(low + (high - low) * rng.random() * (1 - tried / TRIES), LEAST.get(kind, 0))
        stroke = max(
            1, min(int(rng.integers(style.stroke[0], style.stroke[1] + 1)), size / THINNEST)
        )
        cover = _cover(kind, int(size), int(stroke))
        top = int(rng.integers(1, HEIGHT - len(cover)))
        left = int(rng.integers(1, WIDTH - cover.shape[1]))
        found = [Shape(kind, top, left, cover)]
        if touching:
            found = _with_neighbour(rng, style, found[0])
        if all(_is_free(shape, shapes) for shape in found):
            return found
    return []


def _with_neighbour(rng: Generator, style: Style, shape: Shape) -> list[Shape]:
    """Return another shape that touches this one from the left or the right, and this one."""
    size = int(rng.integers(max(8, style.size[0]), style.size[1] + 1))
    cover = _cover(str(rng.choice(OTHERS)), size, 2)
    top = shape.top + (len(shape.cover) - len(cover)) // 2 + int(rng.integers(-2, 3))
    right = bool(rng.random() < 0.5)
    start = shape.left + (shape.cover.shape[1] if right else -cover.shape[1])
    solid = np.zeros((HEIGHT + 2 * WIDTH, 4 * WIDTH), dtype=bool)  # room on all sides
    rows, columns = shape.index
    solid[rows.start + WIDTH : rows.stop + WIDTH, columns.start + WIDTH : columns.stop + WIDTH] = (
        shape.cover > 0
    )
    for step in range(size):
        left = start - step if right else start + step
        around = slice(left + WIDTH - (right), left + WIDTH + cover.shape[1] + (not right))
        near = solid[top + WIDTH : top + WIDTH + len(cover), around]
        near = near[:, :-1] | near[:, 1:]  # a pixel further on is enough to touch
        if (near & (cover > 0)).any():
            return [Shape("neighbour", top, left, cover), shape]
    return [shape]


def _is_free(shape: Shape, shapes: Sequence[Shape]) -> bool:
    rows, columns = shape.index
    if rows.start < 0 or columns.start < 0 or rows.stop > HEIGHT or columns.stop > WIDTH:
        return False
    return all(
        rows.start >= other.index[0].stop + GAP
        or other.index[0].start >= rows.stop + GAP
        or columns.start >= other.index[1].stop + GAP
        or other.index[1].start >= columns.stop + GAP
        for other in shapes
    )


@lru_cache(maxsize=4096)
def _cover(kind: str, size: int, stroke: int) -> Cover:
    """Return how much of each pixel (size, size) a shape covers, from 0 to 1.

    Lines along an axis cover whole pixels: a stroke of 1 in an image of even size would be two
    pixels covered by a half each.
    """
    if kind in {"plus", "t"} and (size - stroke) % 2:
        size += 1
    y, x = (np.mgrid[: size * FINE, : size * FINE] + 0.5) / FINE - size / 2
    return _inside(kind, y, x, stroke).reshape(size, FINE, size, FINE).mean(axis=(1, 3))


def _inside(kind: str, y: Cover, x: Cover, stroke: int) -> Truth:
    """Tell which points are inside a shape around the origin."""
    half, thick = y.max() + 0.5 / FINE, stroke / 2
    radius = np.hypot(y, x)
    band = (radius <= half) & (radius >= half - stroke)
    # A diagonal of stroke 1 is as thick as a pixel's own diagonal: a chain of whole pixels.
    slash, other = abs(y - x) <= stroke * 2**-0.5, abs(y + x) <= stroke * 2**-0.5
    return {
        "x": lambda: slash | other,
        "plus": lambda: np.minimum(abs(y), abs(x)) <= thick,
        "t": lambda: (y <= stroke - half) | (abs(x) <= thick),
        "ring": lambda: band,
        "star": lambda: _rays(y, x, thick) & (radius <= half),
        "disc": lambda: radius <= half,
        "square": lambda: radius >= 0,
        "triangle": lambda: abs(x) <= (y + half) / 2,
        "diamond": lambda: abs(x) + abs(y) <= half,
        "bar": lambda: abs(x) <= max(thick, 1),
        "frame": lambda: np.maximum(abs(x), abs(y)) >= half - stroke,
        "slash": lambda: slash,
        "arc": lambda: band & (y <= 0),
    }[kind]()


def _rays(y: Cover, x: Cover, thick: float) -> Truth:
    """Tell which points are on one of five rays from the origin, the first upwards."""
    out = np.zeros(y.shape, dtype=bool)
    for angle in np.deg2rad(np.arange(5) * 72 - 90):
        along, across = y * np.sin(angle) + x * np.cos(angle), y * np.cos(angle) - x * np.sin(angle)
        out |= (along >= 0) & (abs(across) <= thick)
    return out


def _colour(rng: Generator) -> NDArray[np.float64]:
    """Draw the colour of a background: light, dark or grey, or any."""
    grey = rng.choice([0.92, 0.08, 0.5]) + rng.uniform(-0.06, 0.06)
    return np.full(3, grey) if rng.random() < 0.6 else rng.uniform(0.1, 0.9, 3)


def _tint(
    rng: Generator, base: NDArray[np.float64], contrast: Sequence[float]
) -> NDArray[np.float64]:
    """Draw a colour whose largest difference from the background is a contrast in the range.

    The channel with most room takes it, up to the end of the range.
    """
    step = rng.uniform(*contrast)
    lead = int(np.argmax(abs(base - 0.5) + rng.uniform(0, 0.2, 3)))
    tint = np.clip(base + rng.uniform(-step, step, 3), 0, 1)
    tint[lead] = np.clip(base[lead] + (step if base[lead] < 0.5 else -step), 0, 1)
    return tint


def _texture(rng: Generator, amplitude: float) -> NDArray[np.float64]:
    """Sum waves of 5 to 40 pixels, the same in all channels."""
    if not amplitude:
        return np.zeros((1, HEIGHT, WIDTH))
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    total = np.zeros((HEIGHT, WIDTH))
    for _ in range(4):
        angle, turn = rng.uniform(0, 2 * np.pi, 2)
        total += np.sin(
            2 * np.pi * (y * np.sin(angle) + x * np.cos(angle)) / rng.uniform(5, 40) + turn
        )
    return amplitude * (total / 4)[None]


def _light(rng: Generator, drop: float) -> NDArray[np.float64]:
    """Return a factor for each pixel: a ramp or a lamp, from 1 down to 1 - `drop`."""
    if not drop:
        return np.ones((1, HEIGHT, WIDTH))
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    angle, row, column = rng.uniform(0, 2 * np.pi), rng.uniform(0, HEIGHT), rng.uniform(0, WIDTH)
    ramp, lamp = y * np.sin(angle) + x * np.cos(angle), np.hypot(y - row, x - column)
    fall = ramp if rng.random() < 0.5 else lamp
    return 1 - drop * ((fall - fall.min()) / np.ptp(fall))[None]


def _compressed(pixels: NDArray[np.uint8], quality: int) -> NDArray[np.uint8]:
    """Return the pixels as JPEG of a quality gives them back; 0 is none."""
    if not quality:
        return pixels
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.moveaxis(pixels, 0, -1)).save(file, "jpeg", quality=quality)
    return np.moveaxis(np.asarray(Image.open(file)), -1, 0)
