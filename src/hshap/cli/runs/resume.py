"""`--resume`: the results of an earlier run that a new one takes over."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from hshap._util.recipes import describe
from hshap._util.version import __version__
from hshap._util.visible import as_text
from hshap.cli.faults import Code, Refusal
from hshap.cli.inputs.images import read
from hshap.cli.inputs.models import probe
from hshap.cli.runs.record import WORDS, digest, read_summary
from hshap.errors import HshapError
from hshap.explainer.probes import OTHER, Noise, ask
from hshap.explanation.explanation import Explanation
from hshap.games.targets import Output
from hshap.partitions.grids import AUTO
from hshap.runs.verification import difference_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hshap._util.types import Json, Untyped
    from hshap.baselines.protocol import Baseline
    from hshap.cli.options import MethodOptions
    from hshap.cli.runs.folders import Place
    from hshap.cli.runs.plan import Asked, Plan
    from hshap.explainer import Explainer


COMPARED = 16
"""Images of an earlier run whose scores are compared."""


@dataclass(frozen=True)
class Earlier:
    """An image that an earlier run explained: by class, the file of the result."""

    asked: Asked
    found: Mapping[int, Path]


class Removed(NamedTuple):
    """The entry of an image that is gone, and the files of its results, which stay."""

    entry: Json
    files: tuple[str, ...]


def settings_of(plan: Plan, method: MethodOptions, baseline: Baseline | None) -> dict[str, Json]:
    """Return everything that the numbers of a run depend on, except for the images.

    A part that is None is chosen for each image.
    """
    file = Path(plan.loaded.name)
    described = {} if baseline is None else cast("Mapping[str, Json]", describe(baseline))
    made = {
        "model": plan.loaded.name,
        "model_sha256": digest(file) if file.is_file() else None,
        "format": asdict(plan.format),
        "resize": plan.reader.resize,
        "frame": plan.reader.frame,
        "background": plan.reader.background,
        "targets": list(plan.targets),
        "output": plan.format.output,
        "baseline": {"option": method.baseline, **described},
        "partition": describe(method.make_partition() or AUTO),
        "search": describe(method.make_search() or AUTO),
    }
    return json.loads(json.dumps(made))


def take_over(
    plan: Plan,
    usable: Sequence[Path],
    place: Place,
    settings: Mapping[str, Json],
    *,
    keep_removed: bool = False,
) -> tuple[list[Earlier], list[Removed]]:
    """Return the usable images of a plan that `place.out` has results of, with these settings.

    Results of other settings are a `Refusal`, and so are those of images that the plan lacks,
    unless `keep_removed`: these are returned, too. An image that has changed since, or whose files
    have, is left to be explained again.
    """
    record = read_summary(place.out)
    if record is None:
        if place.others:
            message = f"{place.out} has files but no results to resume; pass another --out"
            raise Refusal(Code.OUTPUT, message)
        return [], []
    differing = [
        WORDS.get(name, name) for name, value in settings.items() if record.get(name) != value
    ]
    if record.get("hshap") != __version__:
        differing.insert(0, f"version of hshap ({record.get('hshap')})")
    if differing:
        message = (
            f"--resume: {place.out} was made with another {', '.join(differing)}; pass the same "
            "options, or --force to replace its results"
        )
        raise Refusal(Code.USAGE, message)
    lists = (cast("Sequence[Untyped]", record.get(key) or ()) for key in ("images", "removed"))
    entries = [entry for some in lists for entry in some]
    by_name: dict[str, list[Path]] = {as_text(file.name): [] for file in plan.files}
    for file in usable:
        by_name[as_text(file.name)].append(file)
    found = [_earlier(plan, place, entry, by_name, keep_removed=keep_removed) for entry in entries]
    return (
        [one for one in found if isinstance(one, Earlier)],
        [one for one in found if isinstance(one, Removed)],
    )


def check_model(plan: Plan, explainer: Explainer, earlier: Sequence[Earlier]) -> None:
    """Refuse a model, or code of one's own, that gives other results than the earlier run.

    The scores of the first images are compared, and one image is explained again: the files of a
    model do not show all of it, since weights may lie beside them, and a module may read others. A
    model that depends on its batch may differ by as much as it does on noise.
    """
    problem = next(_problems(plan, explainer, earlier, 0.0), None)
    if problem is not None:  # few models depend on their batch, so this is measured only now
        noise = Noise.like([plan.pixels(image.asked.path) for image in earlier[:COMPARED]])
        rounding = ask(explainer, noise=noise).rounding
        problem = next(_problems(plan, explainer, earlier, rounding), None)
    if problem is not None:
        raise _other_model(*problem)


def _problems(
    plan: Plan, explainer: Explainer, earlier: Sequence[Earlier], rounding: float
) -> Iterator[tuple[Path, str]]:
    """Yield images with other results than in the earlier run, beyond rounding."""
    for image in earlier[:COMPARED]:
        outputs = probe(plan.loaded, plan.pixels(image.asked.path))
        for number, file in image.found.items():
            stored = Explanation.load(file)
            score = float(Output(number, plan.format.output)(outputs[None])[0])
            scale = max(abs(stored.score), abs(stored.baseline_score))
            if not abs(score - stored.score) <= OTHER * scale + rounding:
                told = f"the score is {score:.6g}, and was {stored.score:.6g}"
                yield image.asked.path, told
    explained = (
        (image.asked.path, number, found)
        for image in earlier
        for number, file in image.found.items()
        if (found := Explanation.load(file)).is_explained
    )
    for path, number, stored in islice(explained, 1):
        (again,) = explainer.explain_many([plan.pair(path, (number,))])
        problem = difference_of(stored, again, rounding).problem
        if problem:
            yield path, problem


def _other_model(path: Path, told: str) -> Refusal:
    message = (
        f"--resume: the earlier run was made with another model, or its files have changed: for "
        f"{path}, {told}; pass the same model, or --force to replace its results"
    )
    return Refusal(Code.USAGE, message)


def _earlier(
    plan: Plan,
    place: Place,
    entry: Untyped,
    by_name: Mapping[str, list[Path]],
    *,
    keep_removed: bool,
) -> Earlier | Removed | None:
    """Return the results of one entry of a record; None if they cannot be used any more."""
    try:
        name, sha256 = Path(entry["image"]).name, (entry["sha256"], entry.get("template_sha256"))
        found = {int(e["target"]): Path(e["explanation"]).stem for e in entry["explanations"]}
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    files = _files(entry)
    if name not in by_name and keep_removed:
        return Removed(entry, tuple(file for file in files if file in place.ours))
    if name not in by_name:
        message = (
            f"--resume: {place.out} has results of {name}, which is not among the images; name all "
            "images of that run, or pass --force to replace its results"
        )
        raise Refusal(Code.USAGE, message)
    same = [path for path in by_name[name] if _is_same(plan, path, sha256)]
    if not same or not found or not place.ours.keys() >= set(files):
        return None
    by_name[name].remove(same[0])  # another entry is another image, even of the same pixels
    try:
        image = plan.ask(read(same[0], plan.reader), tuple(found))
        paths = {number: place.out / f"{stem}.npz" for number, stem in found.items()}
        for path in paths.values():
            Explanation.load(path)  # a file that cannot be read is explained again
        return Earlier(image, paths)
    except (HshapError, OSError):
        return None


def _files(entry: Untyped) -> list[str]:
    """Return the files of an entry; a negative image has no picture."""
    told = [e.get(name) for e in entry["explanations"] for name in ("explanation", "picture")]
    return [Path(name).name for name in told if name]


def _is_same(plan: Plan, path: Path, sha256: tuple[str, str | None]) -> bool:
    """Tell whether an image and its template are those of a record."""
    try:
        return (digest(path), plan.template_digest(path)) == sha256
    except (OSError, Refusal):
        return False
