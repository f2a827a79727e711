"""A volume in a run whose results are files: by a model of its slices, or by a model of volumes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from hshap._util.visible import as_text
from hshap.cli.faults import Code, Refusal
from hshap.cli.inputs.choices import TOP, classes_of
from hshap.cli.inputs.images import planes_at_size
from hshap.cli.inputs.models import probe
from hshap.cli.inputs.scans import levels_of, read_volume
from hshap.cli.output import say
from hshap.cli.progress import Shown, each
from hshap.cli.runs.record import PAGE, SUMMARY
from hshap.cli.runs.result_files import FileStore
from hshap.cli.runs.result_folder import result_folder
from hshap.cli.runs.run import Ended, FileRun
from hshap.explainer.slicing import of_slices
from hshap.explanation.explanation import Explanation
from hshap.explanation.slices import found_slices
from hshap.export.page import View
from hshap.formats.pictures import to_grey
from hshap.games.targets import Output
from hshap.runs.sources.large import content_digest
from hshap.runs.sources.protocol import Decoded, Item, Read
from hshap.runs.worker import Labels

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from hshap._util.types import Heat, Json
    from hshap.cli.inputs.images import Reader
    from hshap.cli.inputs.models import Loaded
    from hshap.cli.options import MethodOptions, ModelOptions, ReadOptions, RunOptions
    from hshap.formats.scan import Scan
    from hshap.runs.storing.protocol import Result
    from hshap.runs.storing.rows import Row

LAYOUT = "CZYX"
STILL = ("auto", "blur", "constant")
"""Baselines that fit a volume; the others are pictures."""
SLICE_FIX = (
    "if it takes another size, pass --size HEIGHTxWIDTH --resize; if it takes volumes, --volume"
)
VOLUME_FIX = "if it takes single slices, leave out --volume"
HEADINGS = ("class", "slice", "coefficient", "alone", "findings")
VOLUME_HEADINGS = ("class", "voxels (z, y, x)", "score")


@dataclass(frozen=True)
class Volume:
    """A scan as the one image of a run, at the size that the model takes."""

    path: Path
    scan: Scan
    pixels: NDArray[np.float32]
    reader: Reader

    @property
    def count(self) -> int:
        return 1

    @property
    def decode(self) -> object:
        return {"reader": self.reader}

    @property
    def spacing(self) -> tuple[float, ...] | None:
        """The sides of a voxel that the model sees, in millimetres, if they are known."""
        if self.scan.spacing is None:
            return None
        sides = zip(self.scan.spacing, self.scan.grid, self.pixels.shape[1:], strict=True)
        return tuple(side * own / seen for side, own, seen in sides)

    @property
    def window(self) -> tuple[float, float] | None:
        """The values that are black and white, if options tell them."""
        white = self.reader.format.white
        return self.reader.window or (None if white is None else (0.0, white))

    def items(self) -> Iterator[Item]:
        yield Item(0, str(self.path), None)

    def read(self, item: Item) -> Read:
        del item
        spacing = self.scan.spacing
        how: dict[str, Json] = {
            "size": list(self.scan.grid),
            "explained_size": list(self.pixels.shape[1:]),
            "spacing": None if spacing is None else list(spacing),
            "window": list(self.scan.window_shown(self.window)),
        }
        depth, *sides = self.scan.grid
        (top, left), (bottom, right) = self.reader.format.seen((sides[0], sides[1]))
        ends = (0, top, left), (depth, bottom, right)
        made = Decoded(self.pixels, how, self.scan.grid, ends)
        return Read(content_digest(self.path), lambda: made, None, str(self.path.absolute()))


def volume_of(path: Path, scan: Scan, loaded: Loaded, reader: Reader, *, whole: bool) -> Volume:
    """Return the input of a model `(channels, z, y, x)`; `whole` if it takes volumes."""
    wanted = reader.format
    pixels, note = levels_of(scan, wanted.white, window=reader.window)
    pixels = to_grey(pixels) if wanted.channels == "grey" else pixels
    say(f"{path}: {note}")
    channels, depth, *sides = pixels.shape
    if whole:
        _check_size(path, scan, loaded, reader)
    else:
        planes = planes_at_size(path, pixels.reshape(-1, *sides), reader)
        pixels = planes.reshape(channels, depth, *planes.shape[1:])
    if channels < wanted.count:
        pixels = np.repeat(pixels, wanted.count, axis=0)
    return Volume(path, scan, wanted.scale(pixels), reader)


def _check_size(path: Path, scan: Scan, loaded: Loaded, reader: Reader) -> None:
    if reader.format.size is not None or reader.resize:
        message = "--size and --resize are for models of slices; leave them out"
        raise Refusal(Code.USAGE, message)
    shape = loaded.shape
    if shape is None:
        return
    sides = shape[1:-1] if reader.format.layout == "nhwc" else shape[2:]
    if any(side not in (None, own) for side, own in zip(sides, scan.grid, strict=True)):
        taken = " x ".join("any" if side is None else str(side) for side in sides)
        message = (
            f"{path} is {' x '.join(map(str, scan.grid))} (z, y, x), but {loaded.name} "
            f"takes {taken}; resample the scan to that size first"
        )
        raise Refusal(Code.MODEL, message)


def explain_volume(  # noqa: PLR0913, PLR0917, the groups of options
    path: Path,
    model: str,
    run: RunOptions,
    method: MethodOptions,
    read: ReadOptions,
    taken: ModelOptions,
    inputs: Sequence[Path],
    *,
    whole: bool,
) -> Ended:
    """Explain a volume into a folder of files; `whole` if the model takes the whole volume."""
    with result_folder(run.out, anew=run.force, inputs=inputs, fixed=(PAGE, SUMMARY)) as place:
        with Shown(f"reading {path.name}"):
            scan = read_volume(path)
        loaded, wanted = taken.load(model, read, volume=whole or None)
        whole = whole or len(loaded.shape or ()) == 5
        reader = read.reader(wanted)
        volume = volume_of(path, scan, loaded, reader, whole=whole)
        if whole and method.baseline.partition(":")[0] not in STILL:
            message = (
                f"--baseline {method.baseline} is a picture, but the model takes volumes; pass "
                "auto, blur, constant or constant:0.5"
            )
            raise Refusal(Code.USAGE, message)
        if not whole:  # pictures for the baseline must be as large as a slice
            size = (volume.pixels.shape[2], volume.pixels.shape[3])
            reader = replace(reader, format=replace(wanted, size=size))
        explainer = method.explainer(loaded, reader)
        outputs = _outputs(volume, loaded, method.targets, whole=whole)
        numbers = classes_of(method.targets, outputs, wanted)

        def slices(found: Result) -> dict[str, Json]:
            if whole or not isinstance(found, Explanation):
                return {}
            return {"slices": _slices(scan, found)}

        store = FileStore(place, "exam", {str(path): _stem(path)}, len(numbers) > 1, slices)
        made = FileRun(
            volume,
            explainer if whole else of_slices(explainer),
            tuple(Output(number, wanted.output) for number in numbers),
            store,
            Labels(loaded.name, wanted.classes, method.promise),
            {
                "model": loaded.name,
                "device": loaded.device,
                "output": wanted.output,
                "takes": "volumes" if whole else "slices",
            },
            lambda rows: iter([_view(volume, store, rows)]),
            f"hshap: {_stem(path)}",
            positives=method.positives,
            retry_failed=run.retry_failed,
            budget=method.most_evaluations,
            layout=LAYOUT,
            spacing=volume.spacing,
        )
        return made.run()


def _outputs(volume: Volume, loaded: Loaded, targets: Sequence[str], *, whole: bool) -> Heat:
    """Return the outputs for the scan; those of one slice where no target needs the others."""
    pixels = volume.pixels
    with Shown("first call of the model"):
        if whole:
            return probe(loaded, pixels, VOLUME_FIX)
        first = probe(loaded, pixels[:, 0], SLICE_FIX)
    if targets and TOP not in targets:
        return first
    with each("scoring slices", range(1, pixels.shape[1])) as numbers:
        others = [probe(loaded, pixels[:, number], SLICE_FIX) for number in numbers]
    return np.max([first, *others], axis=0)


def _slices(scan: Scan, found: Explanation) -> list[Json]:
    """Return the found slices, the strongest first; those of a series name their files."""
    out: list[Json] = []
    of_series = len(scan.files) == scan.grid[0]
    for one in found_slices(found) if found.is_explained else ():
        entry: dict[str, Json] = {
            "slice": one.number,
            "slices": one.slices,
            "coefficient": one.coefficient,
            "alone": one.alone,
            "findings": len(one.explanation.boxes()),
        }
        if of_series:
            entry["file"] = as_text(scan.files[one.number].name)
        out.append(entry)
    return out


def _view(volume: Volume, store: FileStore, rows: Sequence[Row]) -> View:
    scan, window = volume.scan, volume.window
    is_plain = len(scan.array) == 1 and not scan.inverted
    return View(
        as_text(volume.path.resolve().name),
        scan.array if is_plain else scan.shown(window),
        {row["class_name"]: cast("Explanation", store.read(row)) for row in rows},
        pixel_size=scan.spacing,
        window=scan.window_shown(window) if is_plain else None,
        directions=scan.directions if len(scan.grid) == len(scan.spatial) else "",
        values=scan.unit if is_plain else "",
    )


def _stem(path: Path) -> str:
    """Return the name of a scan without its ending.

    >>> _stem(Path("knee.nii.gz"))
    'knee'
    """
    name = path.resolve().name
    return name if path.is_dir() else Path(name.removesuffix(".gz")).stem


def cells_of(rows: Sequence[Row]) -> list[list[str]]:
    """Return the rows of the table that the command prints: found slices, or found boxes."""
    made: list[list[str]] = []
    for row in rows:
        label = row["class_name"]
        if not row["explained"]:
            told = f"negative, not explained: {row['negative']}"
            made.append([label, told, "", "", ""][: 5 if "slices" in row else 3])
        elif "slices" in row:
            for one in row["slices"]:
                first, count = one["slice"], one["slices"]
                number = str(first) if count == 1 else f"{first} to {first + count - 1}"
                values = [f"{one[name]:.4g}" for name in ("coefficient", "alone")]
                made.append([label, number, *values, str(one["findings"])])
        else:
            for box in row["regions"]:
                ends = zip(box["start"], box["stop"], strict=True)
                voxels = ", ".join(f"{start}:{stop}" for start, stop in ends)
                made.append([label, voxels, f"{box['score']:.4g}"])
    return made
