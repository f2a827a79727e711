"""A run of `hshap explain`: from images to results in a folder, whatever happens meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from hshap.cli.faults import Code, Refusal, Refusals, few
from hshap.cli.output import say
from hshap.cli.progress import Shown, bar
from hshap.cli.runs.originals import Scale
from hshap.cli.runs.plan import Bad
from hshap.cli.runs.results import Results
from hshap.cli.runs.resume import check_model, settings_of, take_over
from hshap.cli.runs.signals import Stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hshap._util.types import Heat
    from hshap.cli.options import MethodOptions
    from hshap.cli.runs.folders import Place
    from hshap.cli.runs.plan import Plan
    from hshap.explainer import Explainer
    from hshap.explainer.readings import Pair
    from hshap.games.engine import Progress

MANY = 20
"""Failures before the first result after which a run gives up."""

Watch: TypeAlias = "Callable[[Progress], None]"
"""Receives the progress of a run."""

Reason: TypeAlias = Stop | OSError
"""Why a run was stopped: a signal, or a disk that cannot be written to."""


@dataclass(frozen=True)
class Way:
    """Where results go, and how to treat those of an earlier run and bad images.

    With `keep_removed`, an image that is gone since an earlier run leaves the page, and its results
    stay; without it, the run is refused. `same_model` says that this process made the earlier
    results, so that its model need not be compared.
    """

    out: Path
    force: bool
    resume: bool
    skip_bad: bool
    keep_removed: bool = False
    same_model: bool = False

    @property
    def on(self) -> str:
        """How to go on with a run that was stopped."""
        instead = " instead of --force" if self.force else ""
        return f"run the same command with --resume{instead} to go on"


@dataclass(frozen=True)
class Run:
    """A run: which images, how they are explained, and where the results go.

    `watch` receives the progress, and stops the run if it raises `Stop`. `scale` is for the page.
    """

    plan: Plan
    method: MethodOptions
    way: Way
    place: Place
    watch: Watch | None = None
    scale: Scale = field(default_factory=Scale)

    def run(self) -> tuple[Results, Reason | None]:
        """Explain all images and write everything to a folder; return why it was stopped, if so.

        Without any result, the reason is raised instead.
        """
        plan, method, out = self.plan, self.method, self.way.out
        explainer = method.explainer(plan.loaded, plan.reader)  # a wrong baseline ends here
        usable = self._usable()
        with Shown("first call of the model"):
            outputs = first_outputs(plan, usable, skip_bad=self.way.skip_bad)
        settings = settings_of(plan, method, explainer.baseline)
        settings["template"] = plan.templates is not None
        settings["calibration"] = method.promise and method.promise.document
        settings["channels_last"] = method.channels_last
        settings["explained"] = method.rule
        results = Results(plan, self.place, self.scale, method.promise)
        if self.way.resume:
            keep = self.way.keep_removed
            found = take_over(plan, usable, self.place, settings, keep_removed=keep)
            if not self.way.same_model:
                check_model(plan, explainer, found[0])
            results.take_over(*found)
        run = {**settings, "device": plan.loaded.device}
        results.begin(run, resumed=self.way.resume)
        done = {asked.path for asked in results.finished()}
        left = [file for file in usable if file not in done]
        evaluations, reason = self._explain(left, plan.pairs(left, outputs), results, explainer)
        if not results.finished():
            raise reason or refusals(plan.bad, results.total, "")
        try:
            results.close(run, evaluations=evaluations, stopped=reason is not None)
        except OSError as error:
            where = out / self.place.set_aside().name
            message = f"{out} cannot be written ({error.strerror}); finished images are in {where}"
            raise Refusal(Code.OUTPUT, message) from error
        return results, reason

    def _usable(self) -> tuple[Path, ...]:
        """Return the images that can be read; unless bad ones are skipped, they are refused."""
        usable, bad = self.plan.check(), self.plan.bad
        if bad and not (self.way.skip_bad and usable):
            end = f"pass --skip-bad to explain the other {len(usable)}" if usable else ""
            raise refusals(bad, len(bad) + len(usable), end)
        _tell_skipped(bad)
        return usable

    def _explain(
        self, left: Sequence[Path], pairs: Iterator[Pair], results: Results, explainer: Explainer
    ) -> tuple[int, Reason | None]:
        """Explain images without results; return the evaluations, and why it was stopped."""
        plan, skip_bad = self.plan, self.way.skip_bad
        told = len(plan.bad)

        def on_error(position: int, error: Exception) -> None:
            path = results.image(position).path
            if path not in {one.path for one in plan.bad}:  # it may fail for each class
                plan.bad.append(Bad(path, error))
            results.give_up(path)
            if len(plan.bad) >= told + MANY and not results.finished():
                end = "the run has given up, since none could be explained"
                raise refusals(plan.bad, results.total, end)

        total = max(1, len(left) * max(1, len(plan.targets)))
        with bar(total, self.method.most_evaluations) as progress:
            try:
                told_to = progress if self.watch is None else _both(progress, self.watch)
                rule = self.method.positives
                many = explainer.explain_many(
                    pairs, positives=rule, on_error=on_error, progress=told_to
                )
                for explanation in many:
                    try:
                        results.add(explanation)
                    except OSError:
                        raise
                    except Exception as error:  # noqa: BLE001, any fault is that of this image
                        on_error(explanation.position, error)
            except (Stop, OSError) as reason:
                return progress.evaluations, reason
        if skip_bad:
            _tell_skipped(plan.bad[told:])
        return progress.evaluations, None


def refusals(bad: Sequence[Bad], total: int, end: str) -> Refusal:
    """Return the refusal that tells every bad image in a line of its own, and the end to tell."""
    codes = {one.code for one in bad}
    code = codes.pop() if len(codes) == 1 else Code.INPUT
    lines = few([one.line for one in bad])
    if len(lines) > 1:
        lines.append(f"{len(bad)} of {total} images cannot be used")
    made = Refusals(code, [*lines[:-1], lines[-1] + (f"; {end}" if end else "")])
    made.__cause__ = bad[0].error  # for --debug
    return made


def _both(one: Watch, other: Watch) -> Watch:
    """Return a receiver of progress that passes it to two others."""

    def tell(made: Progress) -> None:
        one(made)
        other(made)

    return tell


def _tell_skipped(bad: Sequence[Bad]) -> None:
    for line in few([f"skipped: {one.line}" for one in bad]):
        say(line)


def first_outputs(plan: Plan, files: Sequence[Path], *, skip_bad: bool) -> Heat:
    """Return the outputs for the first image, or with `skip_bad` for the first that works."""
    for file in files[:-1] if skip_bad else ():
        try:
            return plan.outputs(file)
        except Refusal as error:
            if error.code == Code.USAGE:  # a target, and no fault of the image
                raise
    return plan.outputs(files[-1] if skip_bad else files[0])
