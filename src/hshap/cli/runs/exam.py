"""A run of `hshap exam`: a volume by a model of its slices, or by a model of volumes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from hshap._util.version import __version__
from hshap._util.visible import as_text
from hshap.cli.faults import Code, Refusal
from hshap.cli.inputs.choices import TOP, classes_of, with_source
from hshap.cli.inputs.images import planes_at_size
from hshap.cli.inputs.models import probe
from hshap.cli.inputs.scans import shown
from hshap.cli.output import Names, say
from hshap.cli.progress import Shown, bar, each
from hshap.cli.runs.record import PAGE, digest, write_summary
from hshap.cli.runs.results import facts
from hshap.explainer.slicing import explain_slices
from hshap.explanation.placement import Placement
from hshap.explanation.slices import found_slices
from hshap.export.page import View, write_page
from hshap.games.targets import Output

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from hshap._util.types import Heat, Json
    from hshap.cli.inputs.formats import Format
    from hshap.cli.inputs.images import Reader
    from hshap.cli.inputs.models import Loaded
    from hshap.cli.options import MethodOptions
    from hshap.cli.runs.folders import Place
    from hshap.explainer import Explainer
    from hshap.explanation.explanation import Explanation
    from hshap.formats.scan import Scan

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
class ExamRun:
    """A run: the scan, the model, how it is explained, and where the results go.

    `volume` tells that the model takes the whole volume, else it takes single slices.
    """

    path: Path
    scan: Scan
    loaded: Loaded
    reader: Reader
    method: MethodOptions
    place: Place
    volume: bool

    def run(self) -> tuple[dict[str, Json], list[str]]:
        """Explain the scan; return the record, and the verdict on results with concerns."""
        pixels = self._pixels()
        explainer = self._explainer(pixels)
        wanted = self.reader.format
        numbers = classes_of(self.method.targets, self._outputs(pixels), wanted)
        targets = [Output(number, wanted.output) for number in numbers]
        spacing = self._spacing(pixels.shape[1:])
        with bar(len(targets), self.method.most_evaluations) as told:
            explain = explainer.explain if self.volume else partial(explain_slices, explainer)
            found = explain(
                pixels,
                targets,
                layout=LAYOUT,
                spacing=spacing,
                positives=self.method.positives,
                progress=told,
            )
        placed = {
            number: self._placed(one, wanted.name(number))
            for number, one in zip(numbers, found, strict=True)
        }
        first = next(iter(placed.values()))
        if first.settings.chosen:
            say(f"{self.path}: {first.settings.chosen}; options override these choices")
        record = self._written(placed, wanted)
        concerns = [str(one.how_sure) for one in placed.values() if one.concerns]
        return record, concerns

    def _pixels(self) -> NDArray[np.float32]:
        """Return the input of the model `(channels, z, y, x)`."""
        wanted = self.reader.format
        grey = wanted.channels == "grey"
        pixels, note = shown(self.scan, wanted.white, grey=grey, window=self.reader.window)
        say(f"{self.path}: {note}")
        channels, depth, *sides = pixels.shape
        if self.volume:
            self._check_volume()
        else:
            planes = planes_at_size(self.path, pixels.reshape(-1, *sides), self.reader)
            pixels = planes.reshape(channels, depth, *planes.shape[1:])
        if channels < wanted.count:
            pixels = np.repeat(pixels, wanted.count, axis=0)
        return wanted.scale(pixels)

    def _check_volume(self) -> None:
        if self.reader.format.size is not None or self.reader.resize:
            message = "--size and --resize are for models of slices; leave them out"
            raise Refusal(Code.USAGE, message)
        shape = self.loaded.shape
        if shape is None:
            return
        sides = shape[1:-1] if self.reader.format.layout == "nhwc" else shape[2:]
        grid = self.scan.grid
        if any(side not in (None, own) for side, own in zip(sides, grid, strict=True)):
            taken = " x ".join("any" if side is None else str(side) for side in sides)
            message = (
                f"{self.path} is {' x '.join(map(str, grid))} (z, y, x), but {self.loaded.name} "
                f"takes {taken}; resample the scan to that size first"
            )
            raise Refusal(Code.MODEL, message)

    def _explainer(self, pixels: NDArray[np.float32]) -> Explainer:
        method, reader = self.method, self.reader
        if self.volume and method.baseline.partition(":")[0] not in STILL:
            message = (
                f"--baseline {method.baseline} is a picture, but the model takes volumes; pass "
                "auto, blur, constant or constant:0.5"
            )
            raise Refusal(Code.USAGE, message)
        if not self.volume:  # pictures for the baseline must be as large as a slice
            size = (pixels.shape[2], pixels.shape[3])
            reader = replace(reader, format=replace(reader.format, size=size))
        return method.explainer(self.loaded, reader)

    def _outputs(self, pixels: NDArray[np.float32]) -> Heat:
        """Return the outputs for the scan; those of one slice where no target needs the others."""
        if self.volume:
            with Shown("first call of the model"):
                return probe(self.loaded, pixels, VOLUME_FIX)
        with Shown("first call of the model"):
            first = probe(self.loaded, pixels[:, 0], SLICE_FIX)
        if self.method.targets and TOP not in self.method.targets:
            return first
        with each("scoring slices", range(1, pixels.shape[1])) as numbers:
            others = [probe(self.loaded, pixels[:, number], SLICE_FIX) for number in numbers]
        return np.max([first, *others], axis=0)

    def _spacing(self, grid: tuple[int, ...]) -> tuple[float, ...] | None:
        """Return the sides of a voxel that the model sees, in millimetres, if they are known."""
        if self.scan.spacing is None:
            return None
        sides = zip(self.scan.spacing, self.scan.grid, grid, strict=True)
        return tuple(side * own / seen for side, own, seen in sides)

    def _placed(self, found: Explanation, label: str) -> Explanation:
        name = as_text(self.path.resolve().name)
        source = {"image": name, "class": label, "model": self.loaded.name}
        placement = Placement(found.grid, self.scan.grid)
        return replace(with_source(found, source), placement=placement)

    def _written(self, found: dict[int, Explanation], wanted: Format) -> dict[str, Json]:
        """Save the explanations, the page and the record; return the record."""
        names, folder = Names(Path(name).stem for name in self.place.others), self.place.path
        base = names.new(_stem(self.path))
        entries: list[Json] = []
        for number, one in found.items():
            label = wanted.name(number)
            stem = names.new(f"{base}-{label}") if len(found) > 1 else base
            one.save(folder / f"{stem}.npz")
            slices = {} if self.volume else {"slices": self._slices(one)}
            entries.append(
                {
                    "class": label,
                    "target": number,
                    **facts(one),
                    **slices,
                    "explanation": f"{stem}.npz",
                }
            )
        with Shown("writing the page"):
            write_page(folder / PAGE, [self._view(found, wanted)], title=f"hshap: {base}")
        spacing = self.scan.spacing
        image: dict[str, Json] = {
            "image": as_text(str(self.path)),
            "sha256": digest(self.path) if self.path.is_file() else "",
            "size": list(self.scan.grid),
            "explained_size": list(next(iter(found.values())).grid),
            "spacing": None if spacing is None else list(spacing),
            "window": list(self.scan.window_shown(self._window())),
            "explanations": entries,
        }
        record: dict[str, Json] = {
            "hshap": __version__,
            "command": "exam",
            "model": self.loaded.name,
            "takes": "volumes" if self.volume else "slices",
            "explained": self.method.rule,
            "page": PAGE,
            "images": [image],
        }
        return write_summary(folder, record, {})

    def _slices(self, found: Explanation) -> list[Json]:
        """Return the found slices, the strongest first; those of a series name their files."""
        scan, out = self.scan, []
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

    def _window(self) -> tuple[float, float] | None:
        white = self.reader.format.white
        return self.reader.window or (None if white is None else (0.0, white))

    def _view(self, found: dict[int, Explanation], wanted: Format) -> View:
        scan = self.scan
        window = self._window()
        is_plain = len(scan.array) == 1 and not scan.inverted
        return View(
            as_text(self.path.resolve().name),
            scan.array if is_plain else scan.shown(window),
            {wanted.name(number): one for number, one in found.items()},
            pixel_size=scan.spacing,
            window=scan.window_shown(window) if is_plain else None,
        )


def _stem(path: Path) -> str:
    """Return the name of a scan without its ending.

    >>> _stem(Path("knee.nii.gz"))
    'knee'
    """
    name = path.resolve().name
    return name if path.is_dir() else Path(name.removesuffix(".gz")).stem


def rows_of(record: Mapping[str, Json]) -> list[list[str]]:
    """Return the rows of the table that the command prints: found slices, or found boxes."""
    rows: list[list[str]] = []
    (image,) = cast("list[dict[str, list[dict[str, Json]]]]", record["images"])
    for one in image["explanations"]:
        label = str(one["class"])
        if not one["explained"]:
            told = f"negative, not explained: {one['negative']}"
            rows.append([label, told, "", "", ""][: 5 if "slices" in one else 3])
            continue
        if "slices" not in one:
            for box in cast("list[dict[str, list[int]]]", one["regions"]):
                ends = zip(box["start"], box["stop"], strict=True)
                voxels = ", ".join(f"{start}:{stop}" for start, stop in ends)
                rows.append([label, voxels, f"{box['score']:.4g}"])
            continue
        for each_ in cast("list[dict[str, int]]", one["slices"]):
            first, count = each_["slice"], each_["slices"]
            number = str(first) if count == 1 else f"{first} to {first + count - 1}"
            values = [f"{each_[name]:.4g}" for name in ("coefficient", "alone")]
            rows.append([label, number, *values, str(each_["findings"])])
    return rows
