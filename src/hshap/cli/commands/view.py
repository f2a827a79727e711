"""`hshap view`: a page of explanations that are stored. No model is called."""

from __future__ import annotations

import webbrowser
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from hshap._util.visible import as_text
from hshap.cli.faults import Code, Refusal
from hshap.cli.inputs.explanations import (
    is_tiled,
    load_any,
    load_calibration,
    load_picture,
    source,
)
from hshap.cli.inputs.images import Original, Reader, is_folder, read_original
from hshap.cli.inputs.images import read as read_image
from hshap.cli.options import AsJson, CalibrationFile, Force, ReadOptions, Select
from hshap.cli.output import print_json, say, table, tell
from hshap.cli.runs.folder_views import folder_views, write_views
from hshap.cli.runs.originals import Originals, Scale, on_grey
from hshap.explanation.guarantees.calibration import with_calibration
from hshap.explanation.tiled import TiledExplanation
from hshap.export.page import large_views

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hshap._util.types import Array, Heat
    from hshap.explanation.explanation import Explanation
    from hshap.explanation.guarantees.calibration import Calibration
    from hshap.export.page import View

SUFFIX = ".npz"


def view(  # noqa: PLR0913, one for each option
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE.npz... [IMAGE] | FOLDER [IMAGES]",
            help="Explanations of one image, and the image; or a folder that hshap run or explain "
            "wrote, and the folder of the images if they have been moved.",
        ),
    ],
    *,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page; FILE.html by default.")
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    force: Force = False,
    select: Select = None,
    calibration: CalibrationFile = None,
    json: AsJson = False,
    read: ReadOptions,
) -> None:
    """Make a page of stored explanations: of one image side by side, or of a whole folder.

    Of two explanations, their agreement is measured, too.
    """
    reader = read.reader()
    promise = None if calibration is None else load_calibration(calibration)
    originals = Originals(reader, Scale(read.pixel_size, read.unit))
    target = out or _usual(files[0])
    inputs = files if calibration is None else [*files, calibration]
    agreed: dict[str, float | int | None] | None = None
    if is_folder(files[0]):
        title = as_text(files[0].resolve().stem)
        views = folder_views(files, select, originals, promise)
    elif select is not None:
        message = f"--select is for run folders, and {files[0]} is none; leave it out"
        raise Refusal(Code.USAGE, message)
    elif is_tiled(files[0]):
        title, views = as_text(files[0].stem), _large(files)
    else:
        shown = _single(files, originals, promise)
        title, views = shown.name, iter([shown])
        found = list(shown.explanations.values())
        if len(found) == 2 and found[0].grid == found[1].grid:
            agreed = agreement(*found)
    if is_folder(files[0]) and target.resolve().is_relative_to(files[0].resolve()):
        message = f"--out {target} is in {files[0]}, which it is made from; pass another place"
        raise Refusal(Code.USAGE, message)
    write_views(target, views, title, originals, force=force, inputs=inputs)
    if json:
        also = {} if agreed is None else {"agreement": agreed}
        print_json({"page": as_text(str(target)), **also})
    else:
        if agreed is not None:
            rows = [(name.replace("_", " "), _number(value)) for name, value in agreed.items()]
            table(("agreement of the two", ""), rows)
        tell(f"the page is {target}")
    if open_ and not webbrowser.open(target.absolute().as_uri()):
        say(f"no browser was found; open {target} in one")


def _usual(first: Path) -> Path:
    """Return the page that is written without --out: beside the file or the folder."""
    if not is_folder(first):
        return first.with_suffix(".html")
    named = first if first.name not in {"", ".."} else first.resolve()  # "." has no name
    return named.parent / f"{named.name}.html"


def _large(files: Sequence[Path]) -> Iterator[View]:
    """Return the views of a large image, whose pixels are read as the page is written."""
    paths, image = _parted(files)
    if image is None:
        message = f"{paths[0]} explains a large image by tiles; pass the image after it"
        raise Refusal(Code.USAGE, message)
    found = {path: load_any(path) for path in paths}
    tiled = {path: one for path, one in found.items() if isinstance(one, TiledExplanation)}
    if len(tiled) < len(found):
        other = next(path for path in found if path not in tiled)
        message = f"{other} explains no large image, but {paths[0]} does; pass one kind"
        raise Refusal(Code.USAGE, message)
    names = {path: str(one.target) for path, one in tiled.items()}
    twice = len(set(names.values())) < len(names)
    return large_views(image, {path.stem if twice else names[path]: tiled[path] for path in tiled})


def _single(files: Sequence[Path], originals: Originals, promise: Calibration | None) -> View:
    """Return the view of one image, with its explanations side by side."""
    paths, image = _parted(files)
    found = _named({path: load_picture(path) for path in paths})
    if promise is not None:
        found = {name: with_calibration(made, promise) for name, made in found.items()}
    first = next(iter(found.values()))
    if image is None:
        return on_grey(source(first, "image", paths[0].stem), found)
    return originals.drawn(_fitting(image, originals.reader, first), found)


def _parted(files: Sequence[Path]) -> tuple[list[Path], Path | None]:
    """Return the explanations and the image; the first file is always an explanation."""
    paths = [file for n, file in enumerate(files) if n == 0 or file.suffix.lower() == SUFFIX]
    images = [file for file in files[1:] if file.suffix.lower() != SUFFIX]
    if len(images) > 1:
        message = f"{images[0]} and {images[1]} are two images; pass explanations of one image"
        raise Refusal(Code.USAGE, message)
    if len(set(paths)) < len(paths):
        twice = next(path for path, count in Counter(paths).items() if count > 1)
        raise Refusal(Code.USAGE, f"{twice} is named twice; pass different explanations")
    return paths, images[0] if images else None


def agreement(one: Explanation, other: Explanation) -> dict[str, float | int | None]:
    """Return measures of the agreement of two explanations of one grid.

    `iou` is that of the two areas found; it is 1 if both are empty. `rank_correlation` is
    Spearman's for the maps of coefficients; it is None if one map is constant.
    """
    mine, theirs = set(one.leaves), set(other.leaves)
    areas = [explanation.saliency() > 0 for explanation in (one, other)]
    union = np.logical_or(*areas).sum()
    overlap = np.logical_and(*areas).sum()
    return {
        "same_leaves": len(mine & theirs),
        "leaves_of_the_first_only": len(mine - theirs),
        "leaves_of_the_second_only": len(theirs - mine),
        "iou": float(overlap / union) if union else 1.0,
        "rank_correlation": rank_correlation(one.coefficients(), other.coefficients()),
    }


def rank_correlation(one: Array, other: Array) -> float | None:
    """Return Spearman's rank correlation of two maps; equal values share their mean rank.

    >>> rank_correlation(np.array([1, 2, 2]), np.array([0, 5, 5]))
    1.0
    """
    ranks = [_ranks(values.ravel()) for values in (one, other)]
    centred = [values - values.mean() for values in ranks]
    norm = float(np.sqrt((centred[0] ** 2).sum() * (centred[1] ** 2).sum()))
    return round(float((centred[0] * centred[1]).sum()) / norm, 12) if norm else None


def _ranks(values: Array) -> Heat:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]


def _number(value: float | None) -> str:
    return "undefined: one map is constant" if value is None else f"{value:.4g}"


def _named(found: Mapping[Path, Explanation]) -> dict[str, Explanation]:
    """Return explanations by class; those of one class also by model, file or folder."""
    classes = [source(one, "class", str(one.target)) for one in found.values()]
    models = [Path(source(one, "model", "")).name for one in found.values()]
    tellers = (
        ["" for _ in found],
        [f", {model}" for model in models],
        [f" ({path.stem})" for path in found],
        [f" ({path.absolute().parent.name})" for path in found],
        [f" ({number})" for number in range(1, len(found) + 1)],
    )
    ways = [[as_text(f"{a}{b}") for a, b in zip(classes, tell, strict=True)] for tell in tellers]
    names = next(way for way in ways if len(set(way)) == len(way) or way is ways[-1])
    return dict(zip(names, found.values(), strict=True))


def _fitting(image: Path, reader: Reader, explanation: Explanation) -> Original:
    """Return the original image, or one of the size that the model saw."""
    place = explanation.placement
    original = read_original(image, reader)
    if original.size in (place.shape, place.grid):
        return original
    height, width = place.grid
    wanted = replace(reader, format=replace(reader.format, size=(height, width)))
    picture = read_image(image, wanted, needed_by="the explanation is of")
    return replace(original, pixels=picture.bytes(), window=None, pixel_size=None)
