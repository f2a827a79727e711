"""Templates: a folder with the same scenes without the finding, one for each image of a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hshap.baselines.recipes import Fixed
from hshap.cli.faults import Code, Refusal
from hshap.cli.inputs.images import find, is_folder, read
from hshap.partitions.grids import AUTO

if TYPE_CHECKING:
    from hshap._util.types import Image
    from hshap.cli.inputs.images import Reader


@dataclass(frozen=True)
class Templates:
    """A folder of templates and its images; each is that of the image with the same name."""

    folder: Path
    files: tuple[Path, ...]

    def of(self, image: Path) -> Path:
        """Return the template of an image: of the same name, or of the same but for the ending."""
        same = [file for file in self.files if file.name == image.name]
        same = same or [file for file in self.files if file.stem == image.stem]
        if len(same) == 1:
            return same[0]
        which = "no template" if not same else f"{len(same)} templates"
        message = f"{image} has {which} in {self.folder}; give it one of the same name"
        raise Refusal(Code.INPUT, message)

    def read(self, image: Path, shape: tuple[int, ...], reader: Reader) -> Fixed:
        """Return the template of an image, whose shape it must have, as its baseline."""
        path = self.of(image)
        pixels: Image = reader.format.scale(read(path, reader).pixels)
        if pixels.shape != shape:
            size, wanted = (" x ".join(map(str, one[1:])) for one in (pixels.shape, shape))
            message = (
                f"{path} is {size} (height x width), but its image {image.name} is {wanted}; "
                "give the template the size of its image"
            )
            raise Refusal(Code.INPUT, message)
        return Fixed(pixels)


def templates_of(folder: Path | None, baseline: str) -> Templates | None:
    """Return the templates of --template; None without this option."""
    if folder is None:
        return None
    if baseline != AUTO:
        message = "--template and --baseline exclude each other; pass one of them"
        raise Refusal(Code.USAGE, message)
    if not is_folder(folder):
        message = (
            f"--template {folder} is not a folder; pass a folder with an image of the same name "
            "for each image, or one image for all by --baseline"
        )
        raise Refusal(Code.USAGE, message)
    return Templates(folder, tuple(find([folder])))
