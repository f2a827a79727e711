"""Verification: whether a run folder is as it was written, and its numbers are those of the model.

Without a model, digests are checked: of every row, of every shard, of the chain of each writer,
and of the seals. The columns that repeat what an explanation tells are made again from its games.
With a model, images are explained again, and coalition values compared.

Digests are not signatures. Whoever can write to the folder can write a whole run with all of them;
only a seal that was noted elsewhere shows that.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from hshap._util.arrays import to_numpy
from hshap._util.version import __version__
from hshap.errors import FormatError, HshapError
from hshap.explainer.probes import compare, noted_probes
from hshap.explainer.tiling import explain_tiles
from hshap.explanation.tiled import TiledExplanation
from hshap.explanation.validity import wrong_numbers
from hshap.runs.sources.protocol import Decoded
from hshap.runs.storing.folder import differences
from hshap.runs.storing.identity import Fingerprint
from hshap.runs.storing.protocol import RESULTS
from hshap.runs.storing.rows import digest_of, forged_columns
from hshap.runs.storing.schema import TABLES
from hshap.runs.storing.tiled import problem_of, results_of, summary_of_any
from hshap.runs.tasks import Chosen, reason_of, texts_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hshap._util.types import Json, Untyped
    from hshap.evaluators.tiles import Tiles
    from hshap.explainer import Explainer
    from hshap.explainer.probes import Probes
    from hshap.explanation.explanation import Explanation
    from hshap.runs.reading import Run
    from hshap.runs.sources.protocol import Item, Source
    from hshap.runs.storing.folder import Folder, Shard
    from hshap.runs.tasks import AnyTarget

TOLERANCE = 1e-4
"""Differences up to this share of the largest value come from other batches or machines."""


@dataclass(frozen=True)
class Verification:
    """The outcome of a verification; `print` says it in words.

    `problems` names every altered or missing shard and row, one in a line. `seals` are the digests
    of all seals. `unsealed` shards came after the last one. `values` coalition values were computed
    again, and `largest` is the largest difference of one of them.

    >>> print(Verification(shards=2, rows=10, problems=(), seals=("ab12",)))
    2 shards with 10 rows are as written; the seal is ab12
    """

    shards: int
    rows: int
    problems: tuple[str, ...]
    seals: tuple[str, ...] = ()
    values: int = 0
    largest: float = 0.0
    unsealed: int = 0

    @property
    def seal(self) -> str:
        """The last seal; empty if the run has not ended."""
        return self.seals[-1] if self.seals else ""

    @property
    def is_sound(self) -> bool:
        """Whether nothing was altered, and all values that were computed again are the same."""
        return not self.problems

    def __str__(self) -> str:
        end = f"the seal is {self.seal}" if self.seal else "there is no seal: the run has not ended"
        if self.seal and self.unsealed:
            came = f"{counted(self.unsealed, 'shard')} came after it"
            end += f"; {came}: the run is being continued, or they were added"
        held = f"{counted(self.shards, 'shard')} with {counted(self.rows, 'row')}"
        told = f"{held} {'is' if self.shards == 1 else 'are'} as written; {end}"
        if self.problems:
            told = "\n".join([*self.problems, f"{counted(len(self.problems), 'problem')}; {end}"])
        if self.values:
            told += (
                f"\n{counted(self.values, 'coalition value')} computed again: the largest "
                f"difference is {self.largest:.3g}"
            )
        return told


def counted(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "shard"), counted(2, "shard")
    ('1 shard', '2 shards')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


@dataclass
class _Findings:
    problems: list[str] = field(default_factory=list[str])
    rows: int = 0
    values: int = 0
    largest: float = 0.0


def verify_folder(run: Run, seal: str | None = None) -> Verification:
    """Check all digests of a run folder; no model is needed.

    With a `seal` that was noted earlier, the folder must be as it was when that seal was written.
    """
    folder, found = run.folder, _Findings()
    shards = [shard for table in TABLES for shard in folder.shards(table)]
    own = _own_fingerprint(run.description)
    if own is None:
        found.problems.append("run.json was altered: it has no digests of model and settings")
    noted = run.description.get("hshap")
    if noted != __version__:
        found.problems.append(
            f"the run was written by hshap {noted}: its columns score, boxes and doubt can be "
            "checked by that version alone"
        )
    previous = {shard: _check_shard(folder, shard, own, found) for shard in shards}
    found.problems += _broken_chains(shards, previous)
    present = {shard.name for shard in shards}
    seals = _check_seals(folder, present, found)
    last = next(reversed(seals.values()), None)
    unsealed = 0 if last is None else len(present - last.shards)
    if seal is not None:
        found.problems += _since(seals.get(seal), seal, present, folder.run_sha256())
    problems = tuple(dict.fromkeys(found.problems))
    return Verification(len(shards), found.rows, problems, tuple(seals), unsealed=unsealed)


def _since(noted: _Sealed | None, seal: str, present: set[str], run_sha256: str) -> Iterator[str]:
    """Yield the changes of a folder since a seal was written."""
    if noted is None:
        yield f"the seal {seal} is not one of this run: it was replaced, or is of another run"
        return
    if noted.run != run_sha256:
        yield "run.json was altered after the seal"
    for name in sorted(present - noted.shards):
        yield f"shard {name} came after the seal: its rows were added, or replace others"


def different_from(
    description: Mapping[str, Untyped], wanted: Mapping[str, Json], now: Probes
) -> Iterator[str]:
    """Yield the problems of a model or settings that are not those of the run.

    `wanted` has the entries "hshap", "model" and "settings" of the description, and `now` the
    model's answers to the probes of the run.
    """
    told = list(differences({name: description.get(name) for name in wanted}, wanted))
    if told:
        yield f"the run was made with other settings: {', '.join(told)}"
    noted = noted_probes(description)
    if noted is None:
        yield "run.json was altered: it has no answers of the model"
    elif compare(noted, now).is_other:
        yield f"the run was made with another model: {compare(noted, now)}"


def _own_fingerprint(description: Mapping[str, Untyped]) -> Fingerprint | None:
    try:
        return Fingerprint(description["model"]["sha256"], description["settings"]["sha256"])
    except (KeyError, TypeError):
        return None


def _check_shard(
    folder: Folder, shard: Shard, own: Fingerprint | None, found: _Findings
) -> str | None:
    """Check a shard and its rows; return the digest of the shard before it, None if unknown."""
    try:
        if hashlib.sha256(folder.files.read(shard.name)).hexdigest() != shard.sha256:
            found.problems.append(f"shard {shard.name} was altered")
        rows = folder.rows(shard).to_pylist()
        facts = folder.facts(shard)
    except (FormatError, OSError, ValueError):
        found.problems.append(f"shard {shard.name} cannot be read")
        return None
    for row in rows:
        found.rows += 1
        name = f"row of image {row['image']!r}"
        if digest_of(row) != row["digest"]:
            target = f", target {row['target']}" if "target" in row else ""
            found.problems.append(f"{name}{target} was altered")
        elif own and "target" in row:
            identity = own.identity(row["target"], row["image_sha256"])
            if identity != row["identity"]:
                found.problems.append(f"{name} is not of this model, settings and image")
            if problem := problem_of(row, folder.files):
                found.problems.append(f"{name}: its file {problem}")
            elif wrong := _forged_summary(row, folder):
                found.problems.append(f"{name}, target {row['target']}: {wrong}")
    return facts.get("previous")


def _forged_summary(row: Mapping[str, Untyped], folder: Folder) -> str:
    """Return the fault of a row whose columns for queries are not those that its games give."""
    try:
        found = next(results_of([row], folder.files))
        tiles = found.tiles if isinstance(found, TiledExplanation) else found
        inside = found.inside if isinstance(found, TiledExplanation) else ()
        for one in (tiles, *inside):
            if unsound := wrong_numbers(one):
                return unsound
        wrong = forged_columns(row, {**summary_of_any(found), "reason": tiles.negative})
    except (HshapError, OSError, ValueError) as error:
        return reason_of(error)
    return f"its games give another {', '.join(wrong)}" if wrong else ""


def _broken_chains(shards: Sequence[Shard], previous: Mapping[Shard, str | None]) -> Iterator[str]:
    by_writer: dict[str, dict[int, Shard]] = {}
    for shard in shards:
        by_writer.setdefault(shard.writer, {})[shard.number] = shard
    for writer, chain in sorted(by_writer.items()):
        for number in range(max(chain) + 1):
            if number not in chain:
                yield f"shard {number} of writer {writer} is missing"
        for number, shard in sorted(chain.items()):
            before = chain.get(number - 1)
            expected = "" if number == 0 else before.sha256 if before else previous[shard]
            if previous[shard] is not None and previous[shard] != expected:
                yield f"shard {shard.name} does not follow the shard before it"


@dataclass(frozen=True)
class _Sealed:
    """The digest of run.json and the names of all shards, as a seal lists them."""

    run: str
    shards: frozenset[str]


def _check_seals(folder: Folder, present: set[str], found: _Findings) -> dict[str, _Sealed]:
    """Check the seals; return the content of all that hold, by their digests."""
    seals: dict[str, _Sealed] = {}
    for number, digest in folder.seals():
        name = f"seals/{number:06d}-{digest}.json"
        if hashlib.sha256(folder.files.read(name)).hexdigest() != digest:
            found.problems.append(f"seal {name} was altered")
            continue
        try:
            document = folder.sealed((number, digest))
        except FormatError as error:
            found.problems.append(str(error))
            continue
        # Two drivers that end at the same moment write two seals after one.
        if document.get("previous") not in (seals if number else [""]):
            found.problems.append(f"seal {name} does not follow a seal before it")
        seals[digest] = _Sealed(str(document.get("run")), frozenset(document["shards"]))
    missing = {name for one in seals.values() for name in one.shards} - present
    found.problems += [f"shard {name} is missing: a seal lists it" for name in sorted(missing)]
    # A run without results may get the answers of its model later.
    made = [one for one in seals.values() if any(name.startswith(RESULTS) for name in one.shards)]
    if any(one.run != folder.run_sha256() for one in made or list(seals.values())[-1:]):
        found.problems.append("run.json was altered after the run was sealed")
    return seals


def recompute(  # noqa: PLR0913, each is another part of the run
    run: Run,
    explainer: Explainer,
    source: Source,
    targets: Sequence[AnyTarget],
    *,
    sample: int,
    seed: int | None,
    layout: str | None,
    tolerance: float,
    rounding: float,
    tiles: Tiles | None = None,
) -> tuple[int, float, list[str]]:
    """Explain a random sample of rows again.

    Returns the number of compared coalition values, their largest difference, and the problems. A
    difference counts as a problem beyond `tolerance` of the largest value and `rounding`, up to
    which values differ in other batches.
    """
    keys = random.Random(seed).sample(run.keys, min(sample, len(run.keys)))  # noqa: S311
    wanted = {key.image for key in keys}
    items = {item.name: item for item in source.items() if item.name in wanted}
    by_text = texts_of(targets)
    found = _Findings()
    for key in keys:
        try:
            row = run.row(key)
            stored = run.result(row)
            image = _image(source, items[key.image], row["image_sha256"])
            if isinstance(stored, TiledExplanation):
                target = by_text.get(key.target, stored.tiles.class_index)
                made = explain_tiles(explainer, image, target, tiles=tiles)  # pyright: ignore[reportArgumentType, reportCallIssue]
                count, worst, scale = _tiled_differences(stored, made, rounding)  # pyright: ignore[reportArgumentType]
            else:
                target = by_text.get(key.target, stored.class_index)
                made = explain_again(explainer, image, target, layout)  # pyright: ignore[reportArgumentType]
                again = difference_of(stored, made, rounding)
                count, worst, scale = again.values, again.largest, again.scale
                if again.map_differs:
                    found.problems.append(f"row of image {key.image!r}: {again.problem}")
        except KeyError:
            found.problems.append(f"image {key.image!r} is not in the data set")
            continue
        except Exception as error:  # noqa: BLE001, whatever it is, it is told
            found.problems.append(f"image {key.image!r}: {reason_of(error)}")
            continue
        found.values += count
        found.largest = max(found.largest, worst)
        if worst > tolerance * max(scale, 1e-12) + rounding:
            found.problems.append(
                f"row of image {key.image!r}, target {key.target}: a coalition value differs by "
                f"{worst:.3g} from the model's"
            )
    return found.values, found.largest, found.problems


def explain_again(
    explainer: Explainer, image: object, target: AnyTarget, layout: str | None
) -> Explanation:
    """Explain an image of a source again, with the baseline of its own if it has one."""
    decoded = image if isinstance(image, Decoded) else Decoded(image)  # pyright: ignore[reportArgumentType]
    pixels = to_numpy("image", decoded.image)
    wanted = target.choose(explainer, pixels) if isinstance(target, Chosen) else target
    own = () if decoded.baseline is None else (decoded.baseline,)
    (made,) = explainer.explain_many([(pixels, wanted, *own)], layout=layout)  # pyright: ignore[reportArgumentType]
    return made


class _ChangedError(HshapError):
    """An image is not the one that was explained."""


def _image(source: Source, item: Item, sha256: str) -> object:
    read = source.read(item)
    if read.sha256 != sha256:
        raise _ChangedError("the image has changed since it was explained")
    return read.image()


def _tiled_differences(
    stored: TiledExplanation, made: TiledExplanation, rounding: float
) -> tuple[int, float, float]:
    """Return the same for a large image: over its tiles, and inside the found ones."""
    again = {one.position: one for one in made.inside}
    if {one.position for one in stored.inside} != again.keys():
        return 0, np.inf, 0.0  # other tiles were found
    found = [difference_of(stored.tiles, made.tiles, rounding)]
    found += [difference_of(one, again[one.position], rounding) for one in stored.inside]
    return (
        sum(one.values for one in found),
        max(one.largest for one in found),
        max(one.scale for one in found),
    )


@dataclass(frozen=True)
class ExplanationDifference:
    """How far two explanations of one image differ.

    `values` coalition values were compared, `largest` is their largest difference, infinite for
    other regions, and `scale` the largest value. `map_differs` tells of equal values, but another
    map: other regions were kept. Values of one input differ by up to `rounding` in other batches.
    """

    values: int
    largest: float
    scale: float
    map_differs: bool
    rounding: float

    @property
    def problem(self) -> str:
        """The difference in words; empty if it is no more than rounding."""
        if not np.isfinite(self.largest):
            return "other regions were played"
        if self.largest > TOLERANCE * max(self.scale, 1e-12) + self.rounding:
            return f"a coalition value differs by {self.largest:.3g} from the model's"
        return "the values are the same, but the map is another" if self.map_differs else ""


def difference_of(stored: Explanation, made: Explanation, rounding: float) -> ExplanationDifference:
    """Compare a stored explanation with one that was made again.

    Where `rounding` is much, two searches go other ways; then the games of both are compared.
    """
    again = {game.region: game for game in made.games}
    # A limit of time ends two searches at different games, and so does a budget that goes to the
    # largest shares if a last digit differs; those of both are compared.
    ended = stored.complete and made.complete
    is_fixed = ended and not stored.settings.drops_nothing
    count, worst, scale = 0, 0.0, 0.0
    for game in stored.games:
        other = again.get(game.region)
        if other is None and count and not (is_fixed and rounding <= TOLERANCE * scale):
            continue
        if other is None or other.children != game.children:
            worst = np.inf
            continue
        count += len(game.values)
        worst = max(worst, float(np.abs(game.values - other.values).max()))
        told = {one.number: one.values for one in other.contexts}
        for one in game.contexts:
            if one.number in told:
                count += len(one.values)
                worst = max(worst, float(np.abs(one.values - told[one.number]).max()))
        scale = max(scale, float(np.abs(game.values).max()))
    # Values that differ in a last digit may keep another region: then the map is not compared.
    is_other = ended and worst == 0 and not _same_map(stored, made)
    return ExplanationDifference(count, worst, scale, is_other, rounding)


def _same_map(stored: Explanation, made: Explanation) -> bool:
    one, other = stored.attribution(), made.attribution()
    return bool(np.abs(one - other).max() <= TOLERANCE * np.abs(other).max())
