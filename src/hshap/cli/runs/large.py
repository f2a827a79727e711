"""Large images in a run whose results are files: read tile by tile, and never as a whole."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hshap import export
from hshap._util.visible import as_text, path_of
from hshap.cli.faults import Code, Refusal
from hshap.cli.inputs.archives import targets_of
from hshap.cli.runs.record import PAGE, SUMMARY
from hshap.cli.runs.result_files import FileStore
from hshap.cli.runs.result_folder import result_folder
from hshap.cli.runs.run import Ended, FileRun
from hshap.evaluators.tiles import to_unit
from hshap.formats.pictures import to_grey
from hshap.runs.sources.large import as_large_source
from hshap.runs.worker import Labels

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hshap._util.types import Array
    from hshap.cli.inputs.formats import Format
    from hshap.cli.options import MethodOptions, ModelOptions, ReadOptions, RunOptions
    from hshap.evaluators.tiles import Tiles
    from hshap.export.page.view import View
    from hshap.runs.storing.rows import Row

HEADINGS = ("image", "class", "score", "findings", "tiles found", "evaluations")


@dataclass(frozen=True)
class Prepared:
    """Turns the pixels of a file into the input of the model, by the format of the model."""

    format: Format

    def __call__(self, pixels: Array) -> Array:
        """Return floats `(channels, rows, columns)`."""
        white = self.format.white
        unit = to_unit(pixels) if white is None else pixels.astype(np.float32) / np.float32(white)
        if not (unit.min() >= 0 and unit.max() <= 1):  # also if one is not a number
            message = (
                f"the image has values from {unit.min():g} to {unit.max():g} of white; pass "
                "--white with the value of a white pixel"
            )
            raise Refusal(Code.INPUT, message)
        count = self.format.count
        if len(unit) == 4:  # without the transparency
            unit = unit[:3]
        if len(unit) not in {1, 3} and len(unit) != count:
            message = f"the image has {len(unit)} channels, but the model takes {count}"
            raise Refusal(Code.INPUT, f"{message}; save it with {count}, or in colour")
        if count == 1 and len(unit) == 3:
            unit = to_grey(unit)
        elif count > 1 and len(unit) == 1:
            unit = np.repeat(unit, count, axis=0)
        return self.format.scale(unit)


def explain_large(  # noqa: PLR0913, PLR0917, the groups of options
    images: Sequence[Path],
    model: str,
    tiles: Tiles,
    run: RunOptions,
    method: MethodOptions,
    read: ReadOptions,
    taken: ModelOptions,
    inputs: Sequence[Path],
) -> Ended:
    """Explain large images by tiles into a folder of files."""
    with result_folder(run.out, anew=run.force, inputs=inputs, fixed=(PAGE, SUMMARY)) as place:
        loaded, wanted = taken.load(model, read, size=f"{tiles.side}x{tiles.side}")
        explainer = method.explainer(loaded, read.reader(wanted))
        source = as_large_source([str(path) for path in images])
        source, targets = targets_of(method.targets, source, explainer, wanted, tiles)
        stems = {item.name: Path(item.name).stem for item in source.items()}
        store = FileStore(place, "tiles", stems, several=True)
        made = FileRun(
            source,
            explainer,
            targets,
            store,
            Labels(loaded.name, wanted.classes),
            {"model": loaded.name, "device": loaded.device, "output": wanted.output},
            lambda rows: _views(store, rows),
            f"hshap: {as_text(images[0].name)}",
            positives=method.positives,
            retry_failed=run.retry_failed,
            tiles=replace(tiles, prepare=Prepared(wanted)),
        )
        return made.run()


def _views(store: FileStore, rows: Sequence[Row]) -> Iterator[View]:
    for path, some in groupby(rows, key=lambda row: row["path"]):
        found = {row["class_name"]: store.read(row) for row in some}
        yield from export.page.large_views(Path(path_of(path)), found)  # pyright: ignore[reportArgumentType]


def cells_of(rows: Sequence[Row]) -> list[list[str]]:
    """Return the rows of the table that the command prints."""
    made: list[list[str]] = []
    for row in rows:
        tiles = f"{row['found_tiles']} of {row['tiles']}"
        if row["skipped_tiles"]:
            tiles += f" ({row['skipped_tiles']} skipped)"
        findings = str(len(row["findings"])) if row["explained"] else "negative"
        made.append(
            [
                Path(row["image"]).name,
                row["class_name"],
                f"{row['score']:.3g}",
                findings,
                tiles,
                str(row["evaluations"]),
            ]
        )
    return made
