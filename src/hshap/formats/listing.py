"""Listings: the files of a folder by their use, so that skipped files are reported.

Images are read. Large images, such as whole slides, need another command. The rest are not images.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from hshap.formats.ome_zarr import GROUP
from hshap.formats.slides import SUFFIXES as SLIDES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PICTURES = (
    *(".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"),
    *(".ppm", ".pgm", ".pnm", ".jp2"),
)
"""Endings of pictures, which fit in memory."""

SCANS = (".dcm", ".dicom", ".nii", ".nii.gz")
"""Endings of scans. DICOM files without an ending are known by their content."""

LARGE = (*SLIDES, ".btf", ".tf8")
"""Endings of files that are read region by region, and in no other way."""

ARCHIVE = ".zarr"
COMPANION = ".mrxs"
"""The ending of slides that have a folder of the same name with their pixels."""

COMMANDS = "hshap tiles, or run --tiles"
"""The commands that read large images."""

FOLDER = "folder"
MOST_KINDS = 5
"""Kinds that a line about other files names."""


@dataclass(frozen=True)
class Listing:
    """The paths of a folder by their use. `others` are files that are not images.

    >>> found = listed(["a.png", "b.svs", "c.zarr/.zgroup", "c.zarr/0/0", "d.txt"], [".png"])
    >>> found.images, found.large, found.others
    (('a.png',), ('b.svs', 'c.zarr'), ('d.txt',))
    """

    images: tuple[str, ...]
    large: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    def told(self, folder: str) -> str:
        """Return a line about the other files of a folder; empty if there are none.

        >>> listed(["a.txt", "b.txt"], []).told("cells")
        'cells: 2 entries are not images that are read here, and left out (2 .txt)'
        """
        if not self.others:
            return ""
        counts = Counter(map(_kind, self.others)).most_common()
        kinds = [
            f"{count} {kind}{'s' if kind == FOLDER and count > 1 else ''}"
            for kind, count in counts[:MOST_KINDS]
        ]
        kinds += ["others"] if len(counts) > MOST_KINDS else []
        number = len(self.others)
        told = "1 entry is not an image that is read here"
        if number > 1:
            told = f"{number} entries are not images that are read here"
        return f"{folder}: {told}, and left out ({', '.join(kinds)})"


def listed(names: Iterable[str], endings: Sequence[str]) -> Listing:
    """Sort the paths of files, relative to a folder, by their use; `endings` are those of images.

    A path with a slash at its end is a folder. Hidden files are left out. The files of a large
    image, such as the chunks of OME-Zarr, are listed once, by the path of the image.
    """
    paths = sorted(names)
    archives = _archives(paths)
    parts = archives | {name[: -len(COMPANION)] for name in paths if _ends(name, COMPANION)}
    images, large, others = list[str](), dict.fromkeys(archives), list[str]()
    for name in paths:
        if _is_hidden(name):
            continue
        if _ends(name, *endings):
            images.append(name)
        elif _ends(name, *LARGE):
            large[name] = None
        elif not _is_inside(name, parts):
            others.append(name)
    return Listing(tuple(images), tuple(sorted(large)), tuple(others))


def is_large(name: str) -> bool:
    """Tell whether a file is read region by region alone, by its name.

    >>> is_large("a.svs"), is_large("b.ome.zarr/"), is_large("c.tif")
    (True, True, False)
    """
    return _ends(name.rstrip("/"), *LARGE, ARCHIVE)


def elsewhere(name: str) -> str:
    """Return the reason why a large image is not read as a picture, and the command that reads it.

    >>> elsewhere("a.svs")
    'a.svs is a large image, which is read tile by tile; pass it to hshap tiles, or run --tiles'
    """
    told = f"{name} is a large image, which is read tile by tile; pass it to {COMMANDS}"
    is_archive = not _ends(name, *LARGE)
    return f"{told}, or to hshap exam if it is a volume" if is_archive else told


def _archives(paths: Sequence[str]) -> set[str]:
    """Return the folders of OME-Zarr, without those inside others."""
    halves = [path.rpartition("/") for path in paths]
    found = {folder for folder, _, last in halves if folder and last in GROUP}
    shown = {folder for folder in found if not _is_hidden(folder)}
    return {folder for folder in shown if not _is_inside(folder, shown - {folder})}


def _is_inside(name: str, folders: set[str]) -> bool:
    path = PurePosixPath(name)
    return any(str(one) in folders for one in (path, *path.parents))


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def _kind(name: str) -> str:
    """Return the kind of a file by its ending."""
    ending = PurePosixPath(name).suffix.lower() or "without ending"
    return FOLDER if name.endswith("/") else ending


def _ends(name: str, *endings: str) -> bool:
    return name.lower().endswith(endings)
