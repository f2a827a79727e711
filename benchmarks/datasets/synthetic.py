"""Draw the paper's synthetic images: geometric shapes, positive iff one of them is a cross.

Neither the colours nor the number of shapes depends on the class, so only the crosses tell it.
Images are quantised to uint8 before anybody sees them: stored as bytes, they come back exactly.
"""

from __future__ import annotations

import colorsys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

HEIGHT, WIDTH, SIDE = 100, 120, 10
MAX_CROSSES = 6
MAX_SHAPES = 12
BACKGROUND = 0.92
SPLIT_SIZES = (5000, 1000, 2000)

# Placing one after the other at random can jam from about 60 shapes on, and would then not end.
PLACEABLE = 40


@dataclass(frozen=True, eq=False)
class Sample:
    """Hold one image (3, 100, 120), the mask (100, 120) of its cross pixels and their corners."""

    image: NDArray[np.float32]
    truth: NDArray[np.bool_]
    corners: tuple[tuple[int, int], ...]

    @property
    def crosses(self) -> int:
        return len(self.corners)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Hold many samples stacked, images as bytes since floats would take four times the room."""

    pixels: NDArray[np.uint8]
    truths: NDArray[np.bool_]
    crosses: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def images(self) -> NDArray[np.float32]:
        """Return all images as floats, a fresh array at each call."""
        return to_float(self.pixels)

    @property
    def labels(self) -> NDArray[np.int64]:
        return (self.crosses > 0).astype(np.int64)

    def part(self, rows: slice) -> Dataset:
        return Dataset(self.pixels[rows], self.truths[rows], self.crosses[rows])


def to_float(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Map bytes to [0, 1] by the one division that everybody must share."""
    return pixels.astype(np.float32) / np.float32(255)


def to_bytes(image: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Clip to [0, 1] and round to the nearest of 256 levels; undoes to_float exactly."""
    return np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8)


def _stencils() -> dict[str, NDArray[np.bool_]]:
    middle = (SIDE - 1) / 2
    rows, columns = np.mgrid[:SIDE, :SIDE]
    down, right = abs(rows - middle), abs(columns - middle)
    radius = np.hypot(down, right)
    return {
        # Diagonal: with a thick upright cross, the paper's network stays near 93 % test accuracy.
        "cross": abs(down - right) <= 1,
        "disc": radius < SIDE / 2,
        "square": np.ones((SIDE, SIDE), dtype=bool),
        "triangle": right <= (rows + 1) / 2,
        "diamond": down + right <= SIDE / 2,
        "ring": (radius < SIDE / 2) & (radius > SIDE / 4),
    }


STENCILS = _stencils()
OTHERS = tuple(kind for kind in STENCILS if kind != "cross")


def colour(rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw a saturated colour (3,), any hue alike."""
    return np.array(
        colorsys.hsv_to_rgb(rng.random(), rng.uniform(0.8, 1), rng.uniform(0.6, 1)),
    )


def corner(rng: np.random.Generator) -> tuple[int, int]:
    """Draw the top-left pixel of a shape, uniform over the places where it fits whole."""
    return int(rng.integers(HEIGHT - SIDE + 1)), int(rng.integers(WIDTH - SIDE + 1))


def paint(
    canvas: NDArray[np.floating],
    kind: str,
    at: tuple[int, int],
    tint: NDArray[np.floating],
) -> None:
    """Paint one shape into canvas (3, height, width), in place."""
    row, column = at
    patch = canvas[:, row : row + SIDE, column : column + SIDE]
    patch[:, STENCILS[kind]] = tint[:, None]


def draw(
    rng: np.random.Generator,
    crosses: int,
    *,
    total: int | None = None,
    noise: float = 0.0,
    textured: bool = False,
) -> Sample:
    """Draw an image with exactly that many crosses.

    Without total, the number of shapes follows the law of generate, the same for both classes.
    noise is the standard deviation of additive gaussian noise, in grey levels of 1/255.
    """
    total = draw_total(rng, crosses) if total is None else total
    if not 0 <= crosses <= total <= PLACEABLE:
        message = f"need 0 <= crosses <= total <= {PLACEABLE}, got {crosses=}, {total=}"
        raise ValueError(message)
    canvas = np.full((3, HEIGHT, WIDTH), BACKGROUND)
    if textured:
        canvas += _texture(rng)
    truth = np.zeros((HEIGHT, WIDTH), dtype=bool)
    corners = place(rng, total)
    for at in corners[:crosses]:
        paint(canvas, "cross", at, colour(rng))
        paint(truth[None], "cross", at, np.ones(1))
    for at in corners[crosses:]:
        paint(canvas, str(rng.choice(OTHERS)), at, colour(rng))
    if noise:
        canvas += rng.normal(0, noise / 255, canvas.shape)
    return Sample(to_float(to_bytes(canvas)), truth, tuple(corners[:crosses]))


def draw_total(rng: np.random.Generator, crosses: int) -> int:
    """Draw a number of shapes that leaves room for the crosses.

    An image without crosses reserves the room a positive one would: the totals of the two
    classes then follow one law, and a lone cross is as frequent as a lone other shape.
    """
    room = crosses or int(rng.integers(1, MAX_CROSSES + 1))
    return int(rng.integers(room, max(room, MAX_SHAPES) + 1))


def place(rng: np.random.Generator, total: int) -> list[tuple[int, int]]:
    """Draw corners one after the other, again whenever a shape would overlap an earlier one."""
    placed: list[tuple[int, int]] = []
    while len(placed) < total:
        row, column = corner(rng)
        if all(abs(row - r) >= SIDE or abs(column - c) >= SIDE for r, c in placed):
            placed.append((row, column))
    return placed


def _texture(rng: np.random.Generator) -> NDArray[np.float64]:
    """Sum a few long plane waves per channel, within +-0.08."""
    waves = 4
    down, right = rng.uniform(-3, 3, (2, 3, waves, 1, 1))
    phase = rng.uniform(0, 2 * np.pi, (3, waves, 1, 1))
    rows, columns = np.linspace(0, 1, HEIGHT)[:, None], np.linspace(0, 1, WIDTH)
    angle = 2 * np.pi * (down * rows + right * columns) + phase
    return 0.08 * np.sin(angle).mean(axis=1)


def generate(
    count: int,
    seed: int,
    *,
    noise: float = 0.0,
    textured: bool = False,
) -> Dataset:
    """Generate a shuffled set, half positive; positives have 1 to 6 crosses, evenly drawn."""
    rng = np.random.default_rng(seed)
    wanted = np.zeros(count, dtype=np.int64)
    wanted[: count // 2] = rng.integers(1, MAX_CROSSES + 1, count // 2)
    rng.shuffle(wanted)
    pixels = np.empty((count, 3, HEIGHT, WIDTH), dtype=np.uint8)
    truths = np.empty((count, HEIGHT, WIDTH), dtype=bool)
    for index, crosses in enumerate(wanted):
        sample = draw(rng, int(crosses), noise=noise, textured=textured)
        pixels[index] = to_bytes(sample.image)
        truths[index] = sample.truth
    return Dataset(pixels, truths, wanted)


def splits(
    seed: int,
    *,
    sizes: tuple[int, int, int] = SPLIT_SIZES,
    noise: float = 0.0,
    textured: bool = False,
) -> tuple[Dataset, Dataset, Dataset]:
    """Cut one generated set into training, validation and test; the sizes are the paper's."""
    whole = generate(sum(sizes), seed, noise=noise, textured=textured)
    first, second = sizes[0], sizes[0] + sizes[1]
    return (
        whole.part(slice(None, first)),
        whole.part(slice(first, second)),
        whole.part(slice(second, None)),
    )
