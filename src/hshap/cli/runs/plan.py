"""The images of a run: all are checked before it starts, and read again when they are needed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hshap.cli.faults import Code, Refusal, brief, code_of, one_line
from hshap.cli.inputs.choices import TOP, classes_of
from hshap.cli.inputs.images import Reader, find, is_folder, read
from hshap.cli.inputs.models import Loaded, probe
from hshap.cli.output import say, say_notes
from hshap.cli.progress import each
from hshap.cli.runs.record import digest, unchanged
from hshap.errors import MissingExtraError
from hshap.formats.scan import UPRIGHT
from hshap.games.targets import Output

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from hshap._util.types import Heat, Image
    from hshap.baselines.recipes import Fixed
    from hshap.cli.inputs.formats import Format
    from hshap.cli.inputs.images import Picture
    from hshap.cli.inputs.templates import Templates
    from hshap.explainer.readings import Pair


@dataclass(frozen=True)
class Bad:
    """An image that cannot be used, and the reason."""

    path: Path
    error: Exception

    @property
    def line(self) -> str:
        """The reason in one line that names the image."""
        gone = isinstance(self.error, OSError)
        text = f"cannot be read ({brief(self.error)})" if gone else one_line(self.error)
        return text if str(self.path) in text else f"{self.path}: {text}"

    @property
    def code(self) -> Code:
        """The exit code of a command that stops for it."""
        return Code.INPUT if isinstance(self.error, OSError) else code_of(self.error)


def gather(paths: Iterable[Path]) -> tuple[tuple[Path, ...], list[Bad]]:
    """Return the given images and those of given folders, and the folders that have none.

    Pictures that an earlier run drew in a given folder are left out, with a note.
    """
    found: dict[Path, None] = {}
    bad: list[Bad] = []
    for path in paths:
        try:
            inside = find([path])
        except Refusal as error:
            bad.append(Bad(path, error))
            continue
        drawn = {path / name for name in unchanged(path)} if is_folder(path) else set[Path]()
        if not drawn.isdisjoint(inside):
            count = len(drawn.intersection(inside))
            say(f"{path}: {count} pictures of an earlier run are not explained")
        found |= dict.fromkeys(file for file in inside if file not in drawn)
    return tuple(found), bad


@dataclass(frozen=True)
class Asked:
    """An image of a run: the size that the model sees, the classes to explain, its original size.

    `sha256` and `template_sha256` are those of the files of the image and of its template,
    `orientation` the EXIF orientation by which the image was turned upright.
    """

    path: Path
    size: tuple[int, int]
    classes: tuple[int, ...]
    resized_from: tuple[int, int] | None
    sha256: str
    template_sha256: str | None = None
    orientation: int = UPRIGHT


@dataclass(frozen=True)
class Plan:
    """The images of a run, and its targets as the options name them.

    `asked` has the images that were read for the explainer, in order. `bad` has the images that
    cannot be used; they are added as they are found, before the run and during it. `templates` are
    the images' own baselines. `shown` has the pixels of images that are being explained, for their
    pictures.
    """

    loaded: Loaded
    reader: Reader
    targets: tuple[str, ...]
    files: tuple[Path, ...]
    bad: list[Bad]
    asked: list[Asked] = field(default_factory=list[Asked])
    templates: Templates | None = None
    shown: dict[Path, NDArray[np.uint8]] = field(default_factory=dict[Path, "NDArray[np.uint8]"])

    @property
    def format(self) -> Format:
        """The format of the model's inputs and outputs."""
        return self.reader.format

    def check(self) -> tuple[Path, ...]:
        """Read every image, one at a time; return the usable ones and note the others as bad."""
        notes, usable = dict[str, list[Path]](), list[Path]()
        with each("reading images", self.files) as files:
            for file in files:
                try:
                    picture = read(file, self.reader)
                    self._template(file, self.format.scale(picture.pixels))
                except MissingExtraError:
                    raise  # concerns all images
                except Exception as error:  # noqa: BLE001, any fault is that of this image alone
                    self.bad.append(Bad(file, error))
                    continue
                usable.append(file)
                for note in picture.notes:
                    notes.setdefault(note, []).append(file)
        say_notes(notes)
        return tuple(usable)

    def outputs(self, file: Path) -> Heat:
        """Return the model's outputs for an image; targets that the model lacks are refused."""
        outputs = probe(self.loaded, self.pixels(file))
        classes_of(self.targets, outputs, self.format)
        return outputs

    def pixels(self, file: Path) -> Image:
        """Return the model's input of an image."""
        return self.format.scale(read(file, self.reader).pixels)

    def pairs(self, files: Iterable[Path], outputs: Heat) -> Iterator[Pair]:
        """Yield images and targets for the explainer; an image is read when it is needed.

        `outputs` are the model's for any image. If the target is the top class, the model is called
        on every image. An image that can no longer be used is noted as bad, and the others go on.
        """
        for file in files:
            try:
                picture = read(file, self.reader)
                pixels = self.format.scale(picture.pixels)
                if not self.targets or TOP in self.targets:
                    outputs = probe(self.loaded, pixels)
                classes = classes_of(self.targets, outputs, self.format)
                pair = self._pair(file, pixels, classes)
                self.asked.append(self.ask(picture, classes))
                self.shown[file] = picture.bytes()
            except Exception as error:  # noqa: BLE001, any fault is that of this image alone
                self.bad.append(Bad(file, error))
                continue
            yield pair

    def pair(self, file: Path, classes: tuple[int, ...]) -> Pair:
        """Return an image and classes of it for the explainer."""
        return self._pair(file, self.pixels(file), classes)

    def _pair(self, file: Path, pixels: Image, classes: tuple[int, ...]) -> Pair:
        targets = [Output(number, self.format.output) for number in classes]
        template = self._template(file, pixels)
        return (pixels, targets) if template is None else (pixels, targets, template)

    def ask(self, picture: Picture, classes: tuple[int, ...]) -> Asked:
        """Return the record of an image that was read."""
        _, height, width = picture.pixels.shape
        path, before = picture.path, picture.resized_from
        template = self.template_digest(path)
        size = (height, width)
        return Asked(path, size, classes, before, digest(path), template, picture.orientation)

    def template_digest(self, file: Path) -> str | None:
        """Return the SHA-256 of an image's template; None if images have none."""
        return None if self.templates is None else digest(self.templates.of(file))

    def _template(self, file: Path, pixels: Image) -> Fixed | None:
        """Return the template of an image; None if images have none."""
        if self.templates is None:
            return None
        return self.templates.read(file, pixels.shape, self.reader)
