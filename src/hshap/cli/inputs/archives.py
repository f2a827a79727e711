"""The images of a run, its explainer and its targets, as options describe them.

Everything here pickles: each worker makes the model by itself.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from hshap._util.arrays import to_numpy
from hshap.cli.faults import Code, Refusal, Refusals, code_of, few, one_line
from hshap.cli.inputs.choices import TOP, classes_of
from hshap.cli.inputs.files import size_of
from hshap.cli.inputs.images import (
    MAX_PIXELS,
    Reader,
    decode_bytes,
    find,
    is_folder,
    open_image,
    prepare,
    read,
)
from hshap.cli.inputs.models import Loaded, fitted, load, probe
from hshap.cli.output import say
from hshap.cli.runs.record import digest, unchanged
from hshap.errors import ArgumentError, FormatError, MissingExtraError, ModelError
from hshap.formats.listing import PICTURES, SCANS, elsewhere, is_large
from hshap.formats.ome_zarr import is_zarr
from hshap.formats.scan import UPRIGHT
from hshap.games.targets import Output
from hshap.runs.sources import as_source
from hshap.runs.sources.files import FileSource
from hshap.runs.sources.large import as_large_source
from hshap.runs.sources.protocol import Decoded, Item, Read, Remembering, content_digest
from hshap.runs.sources.tars import TarSource
from hshap.runs.tasks import Chosen

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hshap._util.types import Array, Json
    from hshap.baselines.recipes import Fixed
    from hshap.cli.inputs.formats import Format
    from hshap.cli.inputs.images import Picture
    from hshap.cli.inputs.templates import Templates
    from hshap.cli.options import MethodOptions, ModelOptions
    from hshap.evaluators.tiles import Tiles
    from hshap.explainer import Explainer
    from hshap.games.targets import Activation, Target
    from hshap.runs.sources.protocol import Source

BLOCK = 2**20
"""Bytes of a file that are read at once."""

TRIED = 500
"""Images that are tried for one that can be read, before a run starts."""


@dataclass(frozen=True)
class Pictures:
    """Makes the model's input of an image file, with its template if images have one.

    With `shows`, the image has its pixels for people, too, for pictures of its explanation.
    """

    reader: Reader
    templates: Templates | None = None
    shows: bool = False

    @property
    def settings(self) -> dict[str, object]:
        """How images are made, without the limit on their size, which changes no image."""
        how: dict[str, object] = {"reader": replace(self.reader, max_pixels=MAX_PIXELS)}
        return how if self.templates is None else {**how, "template": True}

    def __call__(self, data: bytes, name: str) -> Decoded:
        """Return the image in the bytes of a file, and how it was changed."""
        picture = prepare(Path(name), decode_bytes(data, name, self.reader), self.reader)
        return self._decoded(picture, name, hashlib.sha256(data).hexdigest())

    def file(self, path: Path, name: str) -> Decoded:
        """Return the image in a file, and how it was changed; `name` is that of the image."""
        try:
            picture = read(path, self.reader)
        except (Refusal, FormatError) as error:
            raise Refusal(code_of(error), str(error).replace(str(path), name)) from error
        return self._decoded(picture, name, digest(path) if self.templates is not None else "")

    def _decoded(self, picture: Picture, name: str, own: str) -> Decoded:
        pixels = self.reader.format.scale(picture.pixels)
        baseline: Fixed | None = None
        changed: dict[str, Json] = {}
        if self.templates is not None:
            baseline = self.templates.read(Path(name), pixels.shape, self.reader)
            # The digest of the content is that of both files.
            changed["template_sha256"] = self.companion(name)
            changed["file_sha256"] = own
        changed["resized_from"] = picture.resized_from and list(picture.resized_from)
        changed["notes"] = list(picture.notes)
        changed["orientation"] = None if picture.orientation == UPRIGHT else picture.orientation
        changed["frame"] = self.reader.frame
        told = {key: value for key, value in changed.items() if value not in (None, [])}
        size = list(picture.pixels.shape[1:])
        shown = picture.bytes() if self.shows else None
        how: dict[str, Json] = {"size": size, **told}
        return Decoded(pixels, how, picture.resized_from, picture.seen, baseline, shown)

    def companion(self, name: str) -> str:
        """Return the SHA-256 of an image's template; empty without templates."""
        return "" if self.templates is None else digest(self.templates.of(Path(name)))


@dataclass(frozen=True)
class ImageFiles:
    """Files of this machine by the paths that a command names, which are their names in the run."""

    files: tuple[Path, ...]
    decode: Pictures

    @property
    def count(self) -> int:
        return len(self.files)

    def items(self) -> Iterator[Item]:
        for number, path in enumerate(self.files):
            yield Item(number, str(path), path)

    def read(self, item: Item) -> Read:
        path = self.files[item.number]
        if is_large(path.name) or (is_folder(path) and is_zarr(path)):
            raise Refusal(Code.INPUT, elsewhere(str(path)))
        with open_image(path, self.decode.reader) as file:
            own = _digest(file)
        sha256 = content_digest(own, self.decode, str(path))
        make = partial(self.decode.file, path, str(path))
        return Read(sha256, make, None, str(path.absolute()))


def _digest(file: IO[bytes]) -> str:
    """Return the SHA-256 of an open file, up to its size: some of the kernel never end."""
    digest, left = hashlib.sha256(), size_of(file)
    while left > 0 and (block := file.read(min(left, BLOCK))):
        digest.update(block)
        left -= len(block)
    return digest.hexdigest()


def image_files(paths: Iterable[Path], decode: Pictures) -> ImageFiles:
    """Return the given images and those of given folders.

    Pictures that an earlier run drew in a given folder are left out, with a note.
    """
    found: dict[Path, None] = {}
    for path in paths:
        inside = find([path])
        drawn = {path / name for name in unchanged(path)} if is_folder(path) else set[Path]()
        if not drawn.isdisjoint(inside):
            count = len(drawn.intersection(inside))
            say(f"{path}: {count} pictures of an earlier run are not explained")
        found |= dict.fromkeys(file for file in inside if file not in drawn)
    return ImageFiles(tuple(found), decode)


@dataclass(frozen=True)
class Recipe:
    """The explainer of a run, as options describe it; calling it loads the model."""

    model: str
    options: ModelOptions
    method: MethodOptions
    reader: Reader

    def __call__(self) -> Explainer:
        """Return the explainer, with the model in memory."""
        made = load(self.model, trust=self.options.trust, device=self.options.device)
        return self.method.explainer(fitted(made, self.reader.format)[0], self.reader)


def source_of(
    images: Sequence[str], decode: Pictures, root: Path | None, *, by_tiles: bool = False
) -> Source:
    """Return the images that arguments name: one folder, list or tar file, or several images."""
    if by_tiles:
        return as_large_source(images[0] if len(images) == 1 else list(images), root)
    if len(images) == 1:
        return as_source(images[0], decode=decode, suffixes=(*PICTURES, *SCANS), root=root)
    return as_source(list(images), decode=decode, root=root)


def targets_of(
    names: Sequence[str],
    source: Source,
    explainer: Explainer,
    wanted: Format,
    tiles: Tiles | None = None,
) -> tuple[Source, tuple[Target | Chosen, ...] | None]:
    """Return the targets that options name, and the source with classes by number.

    None if the source gives the class of each image, and no option does. Classes that the model
    lacks are refused now, and not by every image.
    """
    if tiles is not None:
        return source, _tile_targets(names, explainer, wanted, tiles.side)
    labels = _labels(source.source if isinstance(source, Remembering) else source)
    outputs = _first_outputs(source, explainer)
    fixed = [name for name in names if name != TOP]
    known = classes_of(fixed or [TOP], outputs, wanted)  # names of classes are checked, too
    if not names and labels:
        return _numbered(source, outputs, wanted), None
    made: list[Target | Chosen] = [Output(n, wanted.output) for n in known if fixed]
    if TOP in names or not names:
        made.append(Chosen(TOP, partial(_top, wanted.output)))
    return source, tuple(made)


def _tile_targets(
    names: Sequence[str], explainer: Explainer, wanted: Format, side: int
) -> tuple[Target, ...]:
    """Return the classes of large images, by number or name.

    The class with the highest score is not known before all tiles are scored, so it is refused.
    """
    if TOP in names:
        message = f"--target {TOP} is known only after all tiles are scored; pass a class"
        raise Refusal(Code.USAGE, message)
    outputs = _outputs(explainer, np.zeros((wanted.count, side, side), np.float32))
    if not names and len(outputs) > 1:
        message = "--target is missing: with tiles, pass a class by its number or name"
        raise Refusal(Code.USAGE, message)
    return tuple(Output(n, wanted.output) for n in classes_of(names or ["0"], outputs, wanted))


def _labels(source: Source) -> Sequence[object]:
    if isinstance(source, FileSource):
        return source.labels
    if isinstance(source, TarSource):
        return [member.label for _, member in source.members if member.label is not None]
    return ()


def _numbered(source: Source, outputs: Array, wanted: Format) -> Source:
    """Return a source whose classes are numbers; names are those of --classes.

    An image without a class, or with one that the model lacks, fails alone. A list in which no
    class is known is refused.
    """
    if not isinstance(source, FileSource):
        return source
    number: dict[str, object] = {}
    refused: list[Refusal] = []
    for name in sorted({_class_name(label) for label in source.labels} - {""}):
        try:
            number[name] = classes_of([name], outputs, wanted)[0]
        except Refusal as error:
            refused.append(error)
            number[name] = ArgumentError(f"class {str(error).removeprefix('--target ')}")
    if refused and len(refused) == len(number):
        raise refused[0]
    unknown = [str(one) for one in number.values() if isinstance(one, ArgumentError)]
    for line in few([f"{one}; images with it go to the table of errors" for one in unknown]):
        say(line)
    return replace(source, labels=tuple(number.get(_class_name(label)) for label in source.labels))


def _class_name(label: object) -> str:
    """Return the name of a class in a list; empty if there is none."""
    is_none = label is None or (isinstance(label, float) and not np.isfinite(label))
    if is_none:
        return ""
    is_whole = isinstance(label, float) and label.is_integer()
    return str(int(label) if is_whole else label).strip()  # pyright: ignore[reportArgumentType]


def _first_outputs(source: Source, explainer: Explainer) -> Array:
    """Return the model's outputs for the first image that can be used."""
    errors: dict[str, Exception] = {}
    for item, _ in zip(source.items(), range(TRIED), strict=False):
        try:
            return _outputs(explainer, source.read(item).image())
        except MissingExtraError:
            raise  # concerns all images
        except Exception as error:  # noqa: BLE001, the run tells it with its name
            errors[item.name] = error
    lines = [_line(name, error) for name, error in errors.items()]
    codes = {code_of(error) for error in errors.values()} - {Code.UNEXPECTED}
    end = [] if len(lines) == 1 else [f"none of the first {len(errors)} images can be used"]
    raise Refusals(codes.pop() if len(codes) == 1 else Code.INPUT, [*few(lines), *end])


def _line(name: str, error: Exception) -> str:
    text = f"cannot be read ({error.strerror})" if isinstance(error, OSError) else one_line(error)
    return text if name in text else f"{name}: {text}"


def _outputs(explainer: Explainer, image: object) -> Array:
    pixels = to_numpy("image", image.image if isinstance(image, Decoded) else image)
    model = getattr(explainer.evaluator, "model", None)
    return probe(Loaded(model, "the model"), pixels)


def _top(activation: Activation, explainer: Explainer, image: Array) -> Output:
    """Return the class with the highest score."""
    try:
        return Output(int(_outputs(explainer, image).argmax()), activation)
    except Refusal as error:
        raise ModelError(str(error)) from error
