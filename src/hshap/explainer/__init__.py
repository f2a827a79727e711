"""The explainer: model, baseline, partition and search bound together.

`readings` reads images, `choosing_parts` chooses the parts that are not given, `image_jobs` starts
the searches, and `make_explanation` makes their results.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, overload

from hshap._util import checks
from hshap._util.axes import by_name
from hshap._util.recipes import recipe
from hshap.errors import ArgumentError, PairsFailedError
from hshap.evaluators.batched import Batched
from hshap.evaluators.protocol import Evaluator, provenance_of
from hshap.explainer.choosing_parts import PartChooser
from hshap.explainer.image_jobs import Decisions, search_jobs
from hshap.explainer.make_explanation import make_explanation
from hshap.explainer.readings import ImageReader, iterate, read_pairs, unpack
from hshap.explainer.region_tests import TestPlan, test_regions
from hshap.games import engine
from hshap.games.targets import Target, Wanted, as_targets, is_several
from hshap.models.model_description import Facts, facts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import ArrayLike

    from hshap._util.types import Model
    from hshap.baselines.protocol import Baseline
    from hshap.explainer.choosing_parts import ImageRun
    from hshap.explainer.readings import Pair
    from hshap.explanation.explanation import Explanation
    from hshap.explanation.guarantees.significance import ErrorRate
    from hshap.games.engine import OnError, Progress
    from hshap.games.jobs import Job
    from hshap.games.search import Search
    from hshap.games.targets import Positives
    from hshap.partitions.protocol import Partition

    OnProgress = Callable[[Progress], None]

EXAMPLES = {
    "baseline": "Mean(train_images), Fixed(reference) or Constant(0.0)",
    "partition": "Dyadic(min_size=10) or Bisection(min_size=10)",
    "search": "BestFirst(), DepthFirst(tolerance=0.0) or GroupTesting()",
}


@recipe
class Explainer:
    """Find the regions of an image that drive a model's score.

    `model` is a torch module, an ONNX session, any callable `(n, *image.shape) -> (n, classes)`, or
    an evaluator such as `Batched(model, batch_size=16)`. Images are `(channels, *grid)`, and the
    model always gets them so.

    A part that is left out is chosen. Hidden pixels show the image's own colour. The partition is
    `Superpixels()`, whose regions follow the image, or `Bisection(1)` where higra or scipy is
    missing; if the baseline is a template, that is the same scene but for a few places, it is
    `Spots("auto")`. The search is `BestFirst()`: it plays games in several contexts, splits the
    region with the largest share of the score next, and ends after at most 200 evaluations. For a
    partition of yours it is the paper's `DepthFirst()`. `explanation.settings.chosen` lists the
    choices, and `explanation.concerns` warns where the answer should not be trusted.

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
    baseline: Baseline | None = None
    partition: Partition | None = None
    search: Search | None = None

    def __post_init__(self) -> None:
        _ = self.evaluator  # refuses a model that cannot be called
        for name, examples in EXAMPLES.items():
            value = getattr(self, name)
            if isinstance(value, type) or not (value is None or callable(value)):
                message = f"{name} is {checks.shown(value)}; pass one such as {examples}"
                raise ArgumentError(message)

    @cached_property
    def evaluator(self) -> Evaluator:
        """The model as an evaluator: `model` itself if it is one, else `Batched(model)`."""
        if isinstance(self.model, Evaluator) and not isinstance(self.model, type):
            return self.model
        return Batched(self.model)

    @cached_property
    def facts(self) -> Facts:
        """The names of the model's classes and the images that it takes, as far as known."""
        return facts_of(self.model)

    @overload
    def explain(
        self,
        image: ArrayLike,
        target: Wanted,
        *,
        layout: str | None = None,
        spacing: Sequence[float] | None = None,
        positives: Positives | None = None,
        progress: OnProgress | None = None,
    ) -> Explanation: ...

    @overload
    def explain(
        self,
        image: ArrayLike,
        target: Sequence[Wanted],
        *,
        layout: str | None = None,
        spacing: Sequence[float] | None = None,
        positives: Positives | None = None,
        progress: OnProgress | None = None,
    ) -> list[Explanation]: ...

    def explain(  # noqa: PLR0913, one for each choice of the caller
        self,
        image: ArrayLike,
        target: Wanted | Sequence[Wanted],
        *,
        layout: str | None = None,
        spacing: Sequence[float] | None = None,
        positives: Positives | None = None,
        progress: OnProgress | None = None,
    ) -> Explanation | list[Explanation]:
        """Explain one image.

        `target` is the class to explain, or a callable from the model's outputs `(n, classes)` to
        one number each. A model that knows the names of its classes takes a name, too: see
        `hshap.models`. A list of them gives a list of explanations, which share evaluations.

        `layout` names the axes of the image, such as "HWC", "TCHW" or "CZYX": C are the channels, a
        letter of T, Z, D, Y, H, X and W is any other axis. The channels are moved to the front, for
        the model, the baseline, the partition and all maps. Without `layout`, the channels come
        first, and an image that looks otherwise is refused with an `ArgumentError`. Other axes keep
        their order, unless an arrow says which one the model takes: "XYZ->CZYX". An xarray
        DataArray with dimensions such as `("z", "y", "x")` needs no layout.

        `spacing` is the side of a pixel on each spatial axis of the image, in any one unit, such as
        (5.0, 1.0, 1.0) for slices that are 5 mm apart. Regions are then about as long on each axis
        in this unit, and `min_size` counts pixels of the finest axis. A DataArray with evenly
        spaced coordinates in one unit needs none.

        The image is explained even if the model calls it negative, and `explanation.negative` then
        says so. With `positives`, it is not, as in `explain_many`.
        """
        wanted = as_targets(target, self.facts.index)
        jobs = self._run([(image, wanted)], (layout, spacing), progress, None, positives)
        by_target: dict[int, list[Explanation]] = {}
        for job, done in jobs:
            by_target.setdefault(id(job.target), []).append(done)
        found = [by_target[id(one)].pop() for one in wanted]  # a target may be there twice
        return found if is_several(target) else found[0]

    def explain_many(  # noqa: PLR0913, one for each choice of the caller
        self,
        pairs: Iterable[Pair],
        *,
        layout: str | None = None,
        spacing: Sequence[float] | None = None,
        positives: Positives | None = None,
        on_error: OnError | None = None,
        progress: OnProgress | None = None,
    ) -> Iterator[Explanation]:
        """Explain `(image, target)` pairs in shared batches, and yield results as they finish.

        A third entry, `(image, target, baseline)`, is a baseline for this image alone, such as its
        template. `explanation.position` is the number of its pair. Pairs are read as they are
        needed. Times and `max_seconds` are wall-clock: they include other images and the caller's
        own work. `layout` and `spacing` are as in `explain`.

        With `positives`, only images that the model decides for are explained. The others take one
        evaluation and that of the bare baseline, in batches of many images, and come back without
        findings: `explanation.is_explained` is False, and `explanation.negative` has the reason.

        A pair that fails does not stop the others. After the last result, a `PairsFailedError`
        names every position that failed. With `on_error`, nothing is raised: it is called with the
        position and the exception as soon as a pair fails, and stops the run if it raises.
        """
        errors: dict[int, Exception] = {}
        failing = on_error or errors.__setitem__
        for _, found in self._run(pairs, (layout, spacing), progress, failing, positives):
            yield found
        if errors:
            failed = PairsFailedError(errors)
            raise failed from failed.first

    def test(  # noqa: PLR0913, one for each choice of the caller
        self,
        explanation: Explanation,
        image: ArrayLike,
        *,
        alpha: float = 0.05,
        error: ErrorRate = "family",
        rounds: int = 64,
        max_evaluations: int | None = None,
        baseline: Baseline | None = None,
        target: Target | None = None,
        seed: int = 0,
        layout: str | None = None,
    ) -> Explanation:
        """Return the explanation with tests of its regions, for `guarantees.significance`.

        Each round takes the model's score twice, with and without a region, over two independent
        draws of the hidden pixels. The null hypothesis of a region: on this image, whichever other
        parts of its game are shown, showing the region too leaves the distribution of the model's
        score unchanged. It is about the model and the sampler, not about the object.

        The sampler is this explainer's baseline, or `baseline`: `References` or `Conditional`.
        `error` says which regions are tested: "family" the leaves and the regions in which they
        part, larger ones first; "discovery" the leaves alone. A region takes at most `rounds`, and
        all together `max_evaluations`, by default four times those of the explanation.

        Rounds end as soon as a region is significant at `alpha`, and a region inside another one
        waits for it. A second call continues the rounds. `target` is needed if a callable was
        explained, and `layout` is as in `explain`.

        >>> import hshap
        >>> import numpy as np
        >>> explainer = hshap.Explainer(
        ...     lambda batch: batch.max(axis=(1, 2, 3)),
        ...     baseline=hshap.References(np.zeros((5, 1, 4, 4))),
        ...     partition=hshap.Bisection(min_size=1),
        ... )
        >>> image = np.eye(4)[None]
        >>> tested = explainer.test(explainer.explain(image, target=0), image)
        >>> found = hshap.guarantees.significance(tested)
        >>> len(found.boxes(alpha=0.05, merge=False)), tested.tests.evaluations < 400
        (4, True)
        """
        given = self.baseline if baseline is None else baseline
        plan = TestPlan(alpha, error, rounds, seed, max_evaluations)
        if self.facts.intake is not None:
            named = by_name("image", image, layout)
            image, layout, _ = self.facts.intake.read(named.array, named.layout)
        return test_regions(
            self.evaluator, given, explanation, image, target=target, layout=layout, plan=plan
        )

    def _run(
        self,
        pairs: Iterable[Pair],
        axes: tuple[str | None, Sequence[float] | None],
        progress: OnProgress | None,
        on_error: OnError | None,
        positives: Positives | None = None,
    ) -> Iterator[tuple[Job[ImageRun], Explanation]]:
        """Read images, start their searches, drive them, and yield explanations as they end."""
        session = self.evaluator.open_session()
        parts = PartChooser(self, session)
        reader = ImageReader(self.facts.intake, *axes)
        runs = self._begin(iterate("pairs", pairs), reader, parts, on_error)
        if positives is None:
            groups = search_jobs(runs, parts, on_error)
        else:
            decisions = Decisions(parts, session, positives, on_error)
            groups, progress = decisions.jobs(runs), decisions.count_in(progress)
        for job in engine.run(groups, session, progress, on_error):
            provenance = provenance_of(session, job.run.position)
            yield job, make_explanation(job, self.facts, provenance)

    def _begin(
        self,
        pairs: Iterator[Pair],
        reader: ImageReader,
        parts: PartChooser,
        on_error: OnError | None,
    ) -> Iterator[ImageRun]:
        """Yield each image as it is read; without `on_error`, the first that fails is raised."""
        for position, pair in enumerate(read_pairs(pairs, on_error)):
            try:
                # A copy, because a caller may yield one array filled with one image after another.
                order = unpack(pair, position, copy=bool(on_error))
                targets = as_targets(order.target, self.facts.index)
                run = parts.begin(position, reader.read(order.image), targets, order.baseline)
            except Exception as error:
                if on_error is None:
                    raise
                on_error(position, error)
            else:
                yield run
