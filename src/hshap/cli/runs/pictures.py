"""Images in a run whose results are files: a file and a picture for each, and one page."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from hshap._util.visible import path_of
from hshap.cli.faults import Code, Refusal
from hshap.cli.inputs.archives import ImageFiles, Pictures, image_files, source_of, targets_of
from hshap.cli.output import say
from hshap.cli.runs.originals import Originals, Scale
from hshap.cli.runs.result_files import FileStore
from hshap.cli.runs.run import Ended, FileRun
from hshap.runs.sources.files import FileSource
from hshap.runs.sources.protocol import Remembering
from hshap.runs.sources.tars import TarSource
from hshap.runs.worker import Labels

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hshap.cli.inputs.images import Reader
    from hshap.cli.inputs.models import Loaded
    from hshap.cli.options import MethodOptions
    from hshap.cli.runs.result_folder import ResultFolder
    from hshap.cli.runs.run import Watch
    from hshap.explanation.explanation import Explanation
    from hshap.export.page import View
    from hshap.runs.sources.protocol import Source
    from hshap.runs.storing.rows import Row

LISTS = (".csv", ".parquet", ".tar")
HEADINGS = ("image", "class", "score", "baseline", "findings", "area", "evaluations", "how sure")


def source_named(
    images: Sequence[Path], decode: Pictures, root: Path | None = None
) -> ImageFiles | FileSource | TarSource:
    """Return the images of a command: of a list or a tar file, of folders, or single files."""
    if len(images) == 1 and images[0].name.lower().endswith(LISTS):
        source = source_of([str(images[0])], decode, root)
        if isinstance(source, FileSource | TarSource):
            if source.left_out:
                say(source.left_out)
            return source
    return image_files(images, decode)


def explain_images(  # noqa: PLR0913, PLR0917, the parts of a run
    source: Source,
    loaded: Loaded,
    reader: Reader,
    method: MethodOptions,
    place: ResultFolder,
    scale: Scale,
    *,
    retry_failed: bool = False,
    watch: Watch | None = None,
) -> Ended:
    """Explain images into a folder of files."""
    if source.count == 0:
        raise Refusal(Code.INPUT, "there are no images to explain; pass others")
    explainer = method.explainer(loaded, reader)
    source, wanted = Remembering(source), reader.format
    source, targets = targets_of(method.targets, source, explainer, wanted)
    stems = {item.name: Path(item.name).stem for item in source.items()}
    store = FileStore(place, "explain", stems, several=len(targets or ()) > 1)
    originals = Originals(reader, scale)
    run = FileRun(
        source,
        explainer,
        targets,
        store,
        Labels(loaded.name, wanted.classes, method.promise),
        {"model": loaded.name, "device": loaded.device, "output": wanted.output},
        lambda rows: _views(store, rows, originals),
        f"hshap: {loaded.name}",
        positives=method.positives,
        budget=method.most_evaluations,
        retry_failed=retry_failed,
        watch=watch,
        notes=originals.notes,
    )
    return run.run()


def _views(store: FileStore, rows: Sequence[Row], originals: Originals) -> Iterator[View]:
    """Yield the images of the page, each read from its file when its turn comes."""
    for path, some in groupby(
        sorted(rows, key=lambda row: row["image"]), key=lambda row: row["path"]
    ):
        same = list(some)
        found: dict[str, Explanation] = {row["class_name"]: store.read(row) for row in same}  # pyright: ignore[reportAssignmentType]
        how = json.loads(same[0]["transform"] or "{}")
        size = tuple(how.get("resized_from") or how["size"])
        sha256 = how.get("file_sha256", same[0]["image_sha256"])
        yield originals.view(Path(path_of(path)), sha256, size, found)


def cells_of(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return the rows of the table that ends a run, under `HEADINGS`."""
    return [
        (
            Path(row["image"]).name,
            row["class_name"],
            f"{row['score']:.4g}",
            f"{row['baseline_score']:.4g}",
            *(
                (str(len(row["regions"])), f"{row['area']:.1%}")
                if row["explained"]
                else ("negative", "")
            ),
            str(row["evaluations"]),
            row["how_sure"] + "".join(f" ({one['kind']})" for one in row["concerns"][:1]),
        )
        for row in rows
    ]
