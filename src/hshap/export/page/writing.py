"""Writing a page: one file, or an index with the data of each image in a folder beside it."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from hshap._util.atomic import grant_usual_permissions, replace
from hshap._util.version import __version__
from hshap.errors import ArgumentError
from hshap.export.page.document import as_base64, as_script, as_table, assemble
from hshap.export.page.large_picture import LargePicture
from hshap.export.page.picture import levels_of, shown, thumb, tiles
from hshap.export.page.tables import card, class_table, packed_mask

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hshap._util.types import Json
    from hshap.export.page.document import Part
    from hshap.export.page.picture import Shown
    from hshap.export.page.view import View

Form: TypeAlias = Literal["auto", "file", "folder"]

MOST_BYTES = 2**25
"""A larger page is written with a folder, since a browser must read a file whole to open it."""

MOST_TILES = 4
"""An image in a folder has its tiles in one file up to this number."""

MARK = "hshap-page.txt"
"""The file by which a folder of a page is known."""


def folder_of(page: Path) -> str:
    """Return the name of the folder beside a page.

    >>> folder_of(Path("found/index.html"))
    'index_files'
    """
    return f"{page.stem[:80]}_files"


def drawn(view: View) -> tuple[dict[str, Json], Iterator[Part]]:
    """Return the entry of a view in the index, and its data: table, small picture and tiles.

    The names of the parts begin with a digest of their content. A page that was opened before it
    was made again thus finds its own parts or none, and never those of another image.
    """
    picture = view.image
    # A map of all pixels of a slide would be as large as the slide.
    is_large = isinstance(picture, LargePicture)
    classes = [
        class_table(name, one, has_maps=not is_large) for name, one in view.explanations.items()
    ]
    place = next(iter(view.explanations.values())).placement
    table: dict[str, Json] = {
        "name": view.name,
        "place": {name: list(getattr(place, name)) for name in ("shape", "start", "stop")},
        "classes": classes,
        "truth": None if view.truth is None else packed_mask(view.truth),
        "size": list(view.size),
        "original": view.is_original,
        "pixelSize": view.spacing and list(view.spacing),
        "unit": view.unit,
        "sides": list(view.sides),
        "letters": view.letters,
        "directions": view.directions,
        "values": view.values,
    }
    if isinstance(picture, LargePicture):
        table["image"] = picture.table()
        table["marks"] = [picture.marks(name) for name in view.explanations]
    else:
        picture = shown(picture, len(view.grid), view.window)
        table["image"] = {**picture.table(), "levels": levels_of(picture)}
    text = as_table(table)
    home = _digest(text, picture)
    entry: dict[str, Json] = {
        "name": view.name,
        "home": home,
        "size": list(view.size),
        "classes": [
            {
                "name": made["name"],
                "identity": made["identity"],
                **card(one, view.truth, original=view.is_original),
            }
            for made, one in zip(classes, view.explanations.values(), strict=True)
        ],
    }
    return entry, _parts(home, text, picture)


def _digest(table: str, picture: Shown | LargePicture) -> str:
    made = hashlib.blake2b(f"{__version__} {table}".encode(), digest_size=10)
    # Line by line: the whole as bytes would need its memory again.
    lines = picture.samples() if isinstance(picture, LargePicture) else picture.pixels
    for line in lines:
        made.update(np.ascontiguousarray(line).data)
    return made.hexdigest()


def _parts(home: str, table: str, picture: Shown | LargePicture) -> Iterator[Part]:
    is_large = isinstance(picture, LargePicture)
    yield f"{home}/view", table
    yield f"{home}/thumb", as_base64(picture.thumb() if is_large else thumb(picture))
    for name, data in picture.tiles() if is_large else tiles(picture):
        yield f"{home}/{name}", as_base64(data)


def as_document(views: Iterable[View], title: str) -> str:
    """Return the page as one text."""
    entries: list[Json] = []
    parts: dict[str, str] = {}
    for view in views:
        entry, some = drawn(view)
        entries.append(entry)
        # At once, since a large image is open until the next view. Equal views share their parts.
        parts.update(some)
    return assemble(entries, title, parts.items())


def write(path: Path, views: Iterable[View], title: str, form: Form) -> Path:
    """Write the page; "auto" takes one file as long as that is small."""
    entries: list[Json] = []
    held: list[list[Part]] = []
    size = 0
    folder = _Folder(path) if form == "folder" else None
    try:
        for view in views:
            entry, some = drawn(view)
            entries.append(entry)
            held.append([])
            for part in some:
                held[-1].append(part)
                size += len(part[1])
                if form == "auto" and folder is None and size > MOST_BYTES:
                    folder = _Folder(path)
                    for parts in held[:-1]:
                        folder.add(parts)
                    held = held[-1:]
                if folder is not None and len(held[-1]) > MOST_TILES + 2:
                    folder.spill(held[-1])
            if folder is not None:
                folder.add(held.pop())
        name = None if folder is None else folder.name
        inside = dict(part for parts in held for part in parts)
        text = assemble(entries, title, inside.items(), name)
        if folder is not None:
            folder.publish()
        return replace(path, lambda file: file.write(text.encode()))
    finally:
        if folder is not None:
            folder.close()


class _Folder:
    """The folder beside a page, filled under another name and put in place when it is complete."""

    def __init__(self, path: Path) -> None:
        real = Path(os.path.realpath(path))
        self._target = real.with_name(folder_of(real))
        self.name = self._target.name
        if self._target.exists() and not (self._target / MARK).is_file():
            message = (
                f"{self._target} is not the folder of a page; move it away, or pass another path"
            )
            raise ArgumentError(message)
        self._spilled: set[str] = set()
        self._new = Path(tempfile.mkdtemp(prefix=".hshap-", dir=real.parent))
        (self._new / MARK).write_text("Data of the page beside this folder, written by hshap.\n")

    def add(self, parts: list[Part]) -> None:
        """Write an image: its table and tiles in one file, its small picture in another."""
        name = _home(parts)
        home = self._new / name
        home.mkdir(exist_ok=True)
        if len(parts) > MOST_TILES + 2 or name in self._spilled:
            self.spill(parts)
        view, small, *few = parts
        (home / "thumb.js").write_text(as_script([small]))
        (home / "view.js").write_text(as_script([view, *few]))

    def spill(self, parts: list[Part]) -> None:
        """Write tiles to a file each, and drop them from the list: table, small picture, tiles."""
        for name, text in parts[2:]:
            file = self._new / f"{name}.js"
            file.parent.mkdir(exist_ok=True)
            file.write_text(as_script([(name, text)]))
        self._spilled.add(_home(parts))
        del parts[2:]

    def publish(self) -> None:
        """Put the folder in place; one of an earlier page goes."""
        grant_usual_permissions(self._new)
        if self._target.exists():
            before = self._new.with_name(f"{self._new.name}-before")
            self._target.rename(before)
            self._new.rename(self._target)
            shutil.rmtree(before)
        else:
            self._new.rename(self._target)

    def close(self) -> None:
        """Remove a folder that was not put in place."""
        shutil.rmtree(self._new, ignore_errors=True)


def _home(parts: list[Part]) -> str:
    """Return the folder of an image, by the name of its table."""
    return parts[0][0].split("/")[0]
