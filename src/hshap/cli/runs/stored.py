"""Stored explanations: files, folders of `hshap explain` and run folders, all read in one way."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from hshap._util.visible import as_text, path_of
from hshap.cli.faults import Code, Refusal
from hshap.cli.inputs.choices import with_source
from hshap.cli.inputs.explanations import load_any, source
from hshap.cli.runs.record import recorded
from hshap.explanation.explanation import Explanation
from hshap.runs import open as open_run
from hshap.runs.storing.folder import RUN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hshap._util.types import Untyped
    from hshap.export.documents import Result
    from hshap.runs import Run
    from hshap.runs.reading import Key
    from hshap.runs.storing.folder import Shard

SHARDS = 8
"""Shards that are in memory at once; workers write theirs side by side."""

WORST = "select image from explanations order by doubt desc limit"

MOST_IMAGES = 5000
"""Images of one page or export; more of them are chosen by `--select`."""


@dataclass(frozen=True)
class Stored:
    """A stored explanation, which is read when it is asked for.

    `file` is its file; in a run folder, one of that name would be its. `image` is the path or the
    name of its image, where that is told; `original` is the file of the image, `sha256` its digest.
    """

    file: Path
    read: Callable[[], Result]
    image: str | None = None
    original: Path | None = None
    sha256: str = ""
    target: str = ""

    def explanation(self) -> Explanation:
        """Read the explanation; one of a large image is refused."""
        found = self.read()
        if isinstance(found, Explanation):
            return found
        message = f"{self.file} explains a large image by tiles; pass one that hshap explain wrote"
        raise Refusal(Code.INPUT, message)

    def label(self, explanation: Result) -> str:
        """Return the name of the class: as `hshap explain` stored it, or as a run has it."""
        made = explanation if isinstance(explanation, Explanation) else explanation.tiles
        return source(made, "class", self.target)


def is_run(path: Path | str) -> bool:
    """Tell whether a path is a run folder; a URL is one, or nothing."""
    return "://" in str(path) or (Path(path) / RUN).is_file()


def stored(path: Path | str, select: str | None = None, *, most: int | None = None) -> list[Stored]:
    """Return a file, or the explanations in a folder: those of its record, else by name.

    In a run folder, `select` is a query whose column `image` names the wanted images, in order;
    more than `most` images are refused.
    """
    local = Path(path)
    if is_run(path):
        return _of_run(str(path), select, most)
    if select is not None:
        message = f"--select is for run folders, and {path} is none; pass a folder of hshap run"
        raise Refusal(Code.USAGE, message)
    if not local.is_dir():
        return [Stored(local, partial(load_any, local))]
    found = [
        Stored(one.file, partial(load_any, one.file), one.image, _file(one.image), one.sha256)
        for one in recorded(local)
    ]
    found = found or [Stored(file, partial(load_any, file)) for file in sorted(local.glob("*.npz"))]
    if not found:
        message = (
            f"{path} holds no explanations (.npz); pass a folder that hshap explain or run wrote"
        )
        raise Refusal(Code.INPUT, message)
    return found


def _of_run(path: str, select: str | None, most: int | None) -> list[Stored]:
    run = open_run(path)
    keys: dict[str, list[Key]] = {}
    for key in sorted((*run.keys, *run.negative_keys), key=lambda key: (key.image, key.target)):
        keys.setdefault(key.image, []).append(key)
    wanted = list(keys) if select is None else _selected(run, select)
    if most is not None and len(wanted) > most:
        message = (
            f"{path} has {len(wanted)} images, more than the {most} of one page or export; pass "
            f'--select with a query, such as "{WORST} {most}"'
        )
        raise Refusal(Code.USAGE, message)
    if not wanted:
        told = "has no explanations" if select is None else "has no images of --select"
        raise Refusal(Code.INPUT, f"{path} {told}; pass another run or query")
    names = ["image", "identity", "path", "image_sha256", "class_index"]
    rows = [*run.table(names).to_pylist(), *run.negatives]
    facts = {(row["image"], row["identity"]): [row[name] for name in names[2:]] for row in rows}
    shard = lru_cache(maxsize=SHARDS)(run.folder.rows)
    found: list[Stored] = []
    for image in wanted:
        for key in keys.get(image, ()):
            file, sha256, index = facts[image, key.identity]
            name = as_text(f"{image.replace('/', '-')}-{key.target}")
            found.append(
                Stored(
                    Path(path) / f"{name}.npz",
                    partial(_row, run, shard, key.shard, key.row),
                    image,
                    _file(file) if file and "://" not in file else None,
                    sha256,
                    key.target if index is None else str(index),
                )
            )
    return found


def _file(text: str) -> Path:
    return Path(path_of(text))


def _selected(run: Run, select: str) -> Sequence[str]:
    """Return the images of a query, each once, in its order."""
    rows = run.query(select)
    if rows and "image" not in rows[0]:
        message = f"--select {select!r} gives no column image; pass one such as: {WORST} 100"
        raise Refusal(Code.USAGE, message)
    return list(dict.fromkeys(str(row["image"]) for row in rows))


def _row(run: Run, read: Callable[[Shard], Untyped], shard: Shard, number: int) -> Result:
    row = read(shard).slice(number, 1).to_pylist()[0]
    found = run.result(row)
    turn = _orientation(row["transform"])
    if turn is None or not isinstance(found, Explanation):
        return found
    return with_source(found, {**found.settings.source, "orientation": str(turn)})


def _orientation(transform: str) -> int | None:
    """Return the EXIF orientation by which an image was turned; None if it was not."""
    try:
        turn = json.loads(transform or "{}").get("orientation")
    except (ValueError, AttributeError, RecursionError):
        return None
    return turn if isinstance(turn, int) else None
