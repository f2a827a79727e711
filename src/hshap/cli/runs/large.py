"""A run of `hshap tiles`: images that are read tile by tile, and never as a whole."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from hshap import export
from hshap._util.recipes import describe
from hshap._util.version import __version__
from hshap._util.visible import as_text
from hshap.cli.faults import Code, Refusal
from hshap.cli.inputs.choices import classes_of
from hshap.cli.output import Names
from hshap.cli.progress import Shown
from hshap.cli.runs.large_parts import state_of
from hshap.cli.runs.record import PAGE, digest, write_summary
from hshap.evaluators.tiles import Pool, Tiles, to_unit
from hshap.explainer.probes import Noise, ask
from hshap.explainer.tile_scores import score_tiles
from hshap.explainer.tiling import explain_scored
from hshap.formats.large.opening import opened
from hshap.games.targets import Output
from hshap.partitions.grids import AUTO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from hshap._util.types import Array, Json
    from hshap.cli.inputs.formats import Format
    from hshap.cli.inputs.images import Reader
    from hshap.cli.inputs.models import Loaded
    from hshap.cli.options import MethodOptions
    from hshap.cli.runs.folders import Place
    from hshap.cli.runs.large_parts import TileParts
    from hshap.explainer import Explainer
    from hshap.explainer.tile_parts import Parts
    from hshap.explanation.tiled import TiledExplanation
    from hshap.export.page.view import View
    from hshap.games.engine import Progress

GREY = np.array([0.299, 0.587, 0.114], dtype=np.float32).reshape(3, 1, 1)
"""The weights of red, green and blue in a grey value, as in pillow."""

SIGN = "written by hshap"
"""The entry of a GeoJSON file by which a later run knows it."""


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
            unit = (unit * GREY).sum(axis=0, keepdims=True)
        elif count > 1 and len(unit) == 1:
            unit = np.repeat(unit, count, axis=0)
        return self.format.scale(unit)


@dataclass(frozen=True)
class LargeRun:
    """A run: which images, the model, how they are cut, and where the results go."""

    images: Sequence[Path]
    loaded: Loaded
    reader: Reader
    method: MethodOptions
    tiles: Tiles
    place: Place
    parts: TileParts

    def run(self) -> tuple[dict[str, Json], list[str]]:
        """Explain all images; return the record, and the verdict on results with concerns."""
        wanted = self.reader.format
        explainer = self.method.explainer(self.loaded, self.reader)
        settings = self._settings(explainer)
        names = Names(self.place.others)
        found: list[dict[str, TiledExplanation]] = []
        entries: list[Json] = []
        with self.parts.kept(settings):
            for path in self.images:
                state = state_of(path)
                classes = self.parts.finished(path, state)
                if not classes:
                    classes = self._explained(path, explainer, wanted, self.parts.of(state))
                entries.append({**self._written(path, classes, names), "state": state})
                found.append(classes)
        with Shown("writing the page"):
            title = f"hshap: {as_text(self.images[0].name)}"
            export.page.write_page(
                self.place.path / PAGE, self._views(found), title=title, form="auto"
            )
        record = {"hshap": __version__, "command": "tiles", **settings, "images": entries}
        results = [one for classes in found for one in classes.values()]
        concerns = [str(one.how_sure) for one in results if one.concerns]
        return write_summary(self.place.path, record, {}), concerns

    def _settings(self, explainer: Explainer) -> dict[str, Json]:
        """Return everything that the numbers of a run depend on, except for the images."""
        file, wanted = Path(self.loaded.name), self.reader.format
        made = {
            "model": self.loaded.name,
            "model_sha256": digest(file) if file.is_file() else None,
            "probes": self._probes(explainer),
            "format": asdict(wanted),
            "targets": list(self.method.targets),
            "baseline": describe(explainer.baseline or AUTO),
            "partition": describe(self.method.make_partition() or AUTO),
            "search": describe(self.method.make_search() or AUTO),
            "tiles": describe(self.tiles),
            "explained": self.method.rule,
        }
        return json.loads(json.dumps(made))

    def _probes(self, explainer: Explainer) -> dict[str, Json]:
        """Return the model's answers to noise of the size of a tile."""
        wanted, side = self.reader.format, self.tiles.side
        ends = [wanted.scale(np.full((wanted.count, 1, 1), value)) for value in (0.0, 1.0)]
        low, high = float(np.min(ends)), float(np.max(ends))
        noise = Noise((wanted.count, side, side), "<f4", low, high)
        return ask(explainer, noise=noise).document

    def _explained(
        self, path: Path, explainer: Explainer, wanted: Format, parts: Parts
    ) -> dict[str, TiledExplanation]:
        """Explain the targets of one image; they share the scores of its tiles."""
        tiles = replace(self.tiles, prepare=Prepared(wanted))
        try:
            with opened(path) as image, Shown(f"explaining {as_text(path.name)}") as shown:
                told = _telling(shown, "tiles scored")
                scored = score_tiles(explainer, image, tiles, told, parts)
                pool = Pool.of(tiles.bags, scored.outputs, scored.hidden)
                numbers = classes_of(self.method.targets, pool.whole[0], wanted)
                told = _telling(shown, "tiles looked into")
                return {
                    wanted.name(number): explain_scored(
                        explainer,
                        scored,
                        Output(number, wanted.output),
                        told,
                        parts.found_tiles(number),
                        positives=self.method.positives,
                    )
                    for number in numbers
                }
        except OSError as error:
            message = f"{path} cannot be read ({error.strerror or error}); pass another file"
            raise Refusal(Code.INPUT, message) from error

    def _written(
        self, path: Path, classes: dict[str, TiledExplanation], names: Names
    ) -> dict[str, Json]:
        """Save the results of one image, and return its entry in the record."""
        entries: list[Json] = []
        for label, found in classes.items():
            stem = names.new(f"{path.stem}-{label}")
            found.save(self.place.path / f"{stem}.npz")
            document = {"generator": SIGN, **export.geojson(found, name=label or "finding")}
            export.write_json(self.place.path / f"{stem}.geojson", document)
            entries.append(
                {
                    "class": label,
                    "explanation": f"{stem}.npz",
                    "geojson": f"{stem}.geojson",
                    "score": found.score,
                    "baseline_score": found.baseline_score,
                    "explained": found.tiles.is_explained,
                    "negative": found.tiles.negative or None,
                    "evaluations": found.evaluations,
                    "tiles": found.scores.size,
                    "skipped_tiles": int(found.skipped.sum()),
                    "found_tiles": len(found.inside) + found.unexplained,
                    "findings": [
                        {"start": list(box.start), "stop": list(box.stop), "score": box.score}
                        for box in found.boxes()
                    ],
                    "how_sure": found.how_sure.word,
                    "concerns": [str(concern) for concern in found.concerns],
                }
            )
        return {"image": as_text(str(path)), "explanations": entries}

    def _views(self, found: Sequence[dict[str, TiledExplanation]]) -> Iterator[View]:
        for path, classes in zip(self.images, found, strict=True):
            yield from export.page.large_views(path, classes)


def rows_of(record: Mapping[str, Json]) -> list[list[str]]:
    """Return the rows of the table that the command prints."""
    rows: list[list[str]] = []
    for image in cast("list[dict[str, list[dict[str, float]]]]", record["images"]):
        for each in image["explanations"]:
            tiles = f"{each['found_tiles']} of {each['tiles']}"
            if each["skipped_tiles"]:
                tiles += f" ({each['skipped_tiles']} skipped)"
            findings = cast("list[object]", each["findings"])
            rows.append(
                [
                    str(image["image"]),
                    str(each["class"]),
                    f"{each['score']:.3g}",
                    str(len(findings)) if each["explained"] else "negative",
                    tiles,
                    str(each["evaluations"]),
                ]
            )
    return rows


HEADINGS = ("image", "class", "score", "findings", "tiles found", "evaluations")


def _telling(shown: Shown, unit: str) -> Callable[[Progress], None]:
    """Return a receiver of progress that shows how many tiles are done."""

    def tell(progress: Progress) -> None:
        left = progress.waiting
        done = progress.explanations or progress.evaluations
        share = done / max(1, done + left)
        shown.update(share, f"{done} {unit}, {left} left", is_bound=bool(progress.explanations))

    return tell
