"""The explainer: model, baseline, partition and search bound together."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, overload

from hshap._util import checks
from hshap._util.recipes import recipe
from hshap.errors import ArgumentError, PairsFailedError
from hshap.evaluators.batched import Batched
from hshap.evaluators.easel import Easel
from hshap.evaluators.protocol import Evaluator
from hshap.explanation.explanation import Explanation
from hshap.explanation.settings import Settings
from hshap.explanation.spin import Spin
from hshap.games.engine import Progress, run
from hshap.games.jobs import Job, ScoreTable
from hshap.games.pairs import iterated, read, unpacked
from hshap.games.search import DepthFirst, SearchResult
from hshap.games.targets import Target, as_targets, class_index, describe_target, is_several
from hshap.partitions.grids import Shifted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import ArrayLike

    from hshap._util.types import Model
    from hshap.baselines.protocol import Baseline
    from hshap.games.engine import OnError
    from hshap.games.pairs import Pair
    from hshap.games.search import Search
    from hshap.partitions.protocol import Partition

    OnProgress = Callable[[Progress], None]

EXAMPLES = {
    "baseline": "Mean(train_images), Fixed(reference) or Constant(0.0)",
    "partition": "Dyadic(min_size=10) or Bisection(min_size=10)",
    "search": "DepthFirst(tolerance=0.0) or BreadthFirst(percentile=70)",
}


@recipe
class Explainer:
    """Find the regions of an image that drive a model's score.

    `model` is a torch module, an ONNX session, any callable `(n, *image.shape) -> (n, classes)`, or
    an evaluator such as `Batched(model, batch_size=16)`. Images are `(channels, *grid)`, and the
    model always gets them so.

    >>> import hshap
    >>> import numpy as np
    >>> def has_bright_pixel(batch):
    ...     return (batch > 0.5).any(axis=(1, 2, 3)).astype(float)
    >>> image = np.zeros((1, 8, 8))
    >>> image[0, 2, 5] = 1.0
    >>> explainer = Explainer(
    ...     has_bright_pixel, baseline=hshap.Constant(0.0), partition=hshap.Dyadic(min_size=1)
    ... )
    >>> explainer.explain(image, target=0).leaves
    (Box(start=(2, 5), stop=(3, 6)),)
    """

    model: Model
    baseline: Baseline
    partition: Partition
    search: Search = DepthFirst()

    def __post_init__(self) -> None:
        _ = self.evaluator  # refuses a model that cannot be called
        for name, examples in EXAMPLES.items():
            value = getattr(self, name)
            if isinstance(value, type) or not callable(value):
                message = f"{name} is {checks.shown(value)}; pass one such as {examples}"
                raise ArgumentError(message)

    @cached_property
    def evaluator(self) -> Evaluator:
        """The model as an evaluator: `model` itself if it is one, else `Batched(model)`."""
        if isinstance(self.model, Evaluator) and not isinstance(self.model, type):
            return self.model
        return Batched(self.model)

    @overload
    def explain(
        self,
        image: ArrayLike,
        target: Target,
        *,
        layout: str | None = None,
        progress: OnProgress | None = None,
    ) -> Explanation: ...

    @overload
    def explain(
        self,
        image: ArrayLike,
        target: Sequence[Target],
        *,
        layout: str | None = None,
        progress: OnProgress | None = None,
    ) -> list[Explanation]: ...

    def explain(
        self,
        image: ArrayLike,
        target: Target | Sequence[Target],
        *,
        layout: str | None = None,
        progress: OnProgress | None = None,
    ) -> Explanation | list[Explanation]:
        """Explain one image.

        `target` is the class to explain, or a callable from the model's outputs `(n, classes)` to
        one number each. A list of them gives a list of explanations, which share evaluations.

        `layout` names the axes of the image, such as "HWC", "TCHW" or "CZYX": C are the channels, a
        letter of T, Z, D, Y, H, X and W is any other axis. The channels are moved to the front, for
        the model, the baseline, the partition and all maps. Without `layout`, the channels come
        first, and an image that looks otherwise is refused with an `ArgumentError`.
        """
        jobs = self._run([(image, as_targets(target))], layout, progress, None)
        found = [done for _, done in sorted(jobs, key=lambda item: item[0].column)]
        return found if is_several(target) else found[0]

    def explain_many(
        self,
        pairs: Iterable[Pair],
        *,
        layout: str | None = None,
        on_error: OnError | None = None,
        progress: OnProgress | None = None,
    ) -> Iterator[Explanation]:
        """Explain `(image, target)` pairs in shared batches, and yield results as they finish.

        `explanation.position` is the number of its pair. Pairs are read as they are needed. Times
        and `max_seconds` are wall-clock: they include other images and the caller's own work.
        `layout` is as in `explain`.

        A pair that fails does not stop the others. After the last result, a `PairsFailedError`
        names every position that failed. With `on_error`, nothing is raised: it is called with the
        position and the exception as soon as a pair fails, and stops the run if it raises.
        """
        errors: dict[int, Exception] = {}
        for _, found in self._run(pairs, layout, progress, on_error or errors.__setitem__):
            yield found
        if errors:
            failed = PairsFailedError(errors)
            raise failed from failed.first

    def _run(
        self,
        pairs: Iterable[Pair],
        layout: str | None,
        progress: OnProgress | None,
        on_error: OnError | None,
    ) -> Iterator[tuple[Job, Explanation]]:
        session = self.evaluator.open_session()
        settings = _settings(self, layout)
        easel = Easel(self.baseline, session.put, layout)
        groups = self._groups(iterated("pairs", pairs), easel, on_error)
        for job in run(groups, session, progress, on_error):
            yield job, _explanation(job, settings)

    def _groups(
        self, pairs: Iterator[Pair], easel: Easel, on_error: OnError | None
    ) -> Iterator[list[Job]]:
        """Yield the jobs of each pair; without `on_error`, the first that fails is raised."""
        for position, pair in enumerate(read(pairs, on_error)):
            try:
                # A copy, because a caller may yield one array filled with one image after another.
                made = self._jobs(easel, position, unpacked(pair, position, copy=bool(on_error)))
            except Exception as error:
                if on_error is None:
                    raise
                on_error(position, error)
            else:
                yield made

    def _jobs(self, easel: Easel, position: int, pair: Pair) -> list[Job]:
        image, target = pair
        pixels, targets = easel.pixels(image), as_targets(target)
        canvas = easel.canvas(pixels, easel.root(self.partition, pixels), position)
        table = ScoreTable(canvas, targets)
        return [Job(table, column, self.search, canvas.root) for column in range(len(targets))]


def cycle_spin(  # noqa: PLR0913, shifts and partitions exclude each other
    explainer: Explainer,
    image: ArrayLike,
    target: Target,
    *,
    shifts: Iterable[int | Sequence[int]] | None = None,
    partitions: Iterable[Partition] | None = None,
    layout: str | None = None,
    progress: OnProgress | None = None,
) -> Spin:
    """Explain an image over several partitions; the maps of the result are their means.

    Pass one of two. `shifts` moves the explainer's partition: a shift is one number of pixels for
    all spatial axes, or one for each. `partitions` replaces it, for example by `Superpixels` of
    several seeds. Every entry counts once in the mean. Coalitions that several members share are
    evaluated once. `layout` is as in `Explainer.explain`.

    >>> import hshap
    >>> import numpy as np
    >>> explainer = Explainer(
    ...     lambda batch: batch.max(axis=(1, 2, 3)),
    ...     baseline=hshap.Constant(0.0),
    ...     partition=hshap.Dyadic(min_size=2),
    ... )
    >>> cycle_spin(explainer, np.eye(8)[None], target=0, shifts=[0, 1]).saliency().shape
    (8, 8)
    """
    members_of = _members(explainer.partition, shifts, partitions)
    if is_several(target):
        message = (
            f"target={checks.shown(target)} is several; pass one, and call cycle_spin for each"
        )
        raise ArgumentError(message)
    session = explainer.evaluator.open_session()
    easel = Easel(explainer.baseline, session.put, layout)
    pixels = easel.pixels(image)
    roots = [easel.root(made, pixels) for made in members_of]
    table = ScoreTable(easel.canvas(pixels, roots[0], 0), as_targets(target))
    jobs = [Job(table, 0, explainer.search, root) for root in roots]
    settings = _settings(explainer, layout)
    for _ in run([jobs], session, progress):
        pass  # results are read below, in the order of the shifts
    members = [
        _explanation(job, settings.updated(partition=partition))
        for job, partition in zip(jobs, members_of, strict=True)
    ]
    return Spin(tuple(members), table.evaluations)


def _members(
    own: Partition,
    shifts: Iterable[int | Sequence[int]] | None,
    partitions: Iterable[Partition] | None,
) -> list[Partition]:
    if (shifts is None) == (partitions is None):
        given = "neither" if shifts is None else "both"
        message = (
            f"shifts and partitions: {given} is given; pass shifts=[(0, 0), (0, 5), (5, 0)] "
            "or partitions=[Superpixels(seed=0), Superpixels(seed=1)]"
        )
        raise ArgumentError(message)
    if partitions is None:
        found: list[Partition] = [Shifted(own, shift) for shift in iterated("shifts", shifts)]
        name, example = "shifts", "[(0, 0), (0, 5), (5, 0), (5, 5)]"
    else:
        found = list(iterated("partitions", partitions))
        name, example = "partitions", "[Superpixels(seed=0), Superpixels(seed=1)]"
    if not found:
        message = f"{name} is empty; pass at least one, for example {example}"
        raise ArgumentError(message)
    for partition in found:
        if isinstance(partition, type) or not callable(partition):
            message = f"partitions holds {checks.shown(partition)}; pass ones such as {example}"
            raise ArgumentError(message)
    return found


def _explanation(job: Job, settings: Settings) -> Explanation:
    found, canvas = job.result or SearchResult(()), job.canvas
    target = job.table.targets[job.column]
    return Explanation(
        grid=canvas.grid,
        target=describe_target(target),
        leaves=found.leaves,
        games=tuple(job.games),
        evaluations=job.evaluations,
        seconds=job.seconds,
        draws=canvas.draws,
        unfinished=found.unfinished,
        position=canvas.position,
        settings=settings,
        class_index=class_index(target),
    )


def _settings(explainer: Explainer, layout: str | None) -> Settings:
    made = Settings.of(
        type=type(explainer).__name__,
        model=explainer.evaluator,
        baseline=explainer.baseline,
        partition=explainer.partition,
        search=explainer.search,
    )
    return made if layout is None else made.updated(layout=layout)
