"""The conformance checks: our own parts pass them, and each rule is seen to be broken."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

import hshap
from hshap.protocols import Still
from hshap.testing import (
    ConformanceError,
    check_baseline,
    check_evaluator,
    check_partition,
    check_search,
)

RNG = np.random.default_rng(0)
REFERENCES = RNG.random((5, 1, 8, 8))
CALLS = itertools.count()


def mean(batch):
    weights = np.cos(np.arange(batch[0].size)).reshape(batch.shape[1:])
    return (np.asarray(batch) * weights).reshape(len(batch), -1).mean(axis=1)


def breaks(rule):
    return pytest.raises(ConformanceError, match=rule)


# Partitions

ATLAS = hshap.Superpixels.from_labels(np.arange(64).reshape(8, 8) // 11)
PARTITIONS = [
    hshap.Dyadic(2),
    hshap.Dyadic((1, 3)),
    hshap.Dyadic("auto"),
    hshap.Bisection(3),
    hshap.Bisection("auto"),
    hshap.Shifted(hshap.Dyadic(2), 3),
    hshap.Shifted(hshap.Superpixels(min_area=4), (1, 2)),
    hshap.Superpixels(min_area=2, parts=4, max_area=8),
    hshap.Superpixels(min_area="auto"),
    hshap.Spots(3),
]


@pytest.mark.parametrize("partition", PARTITIONS, ids=repr)
def test_our_partitions_conform(partition):
    assert len(check_partition(partition).passed) == 8


@pytest.mark.parametrize("shape", [(2, 17), (1, 6, 5, 4), (1, 1, 1), (2, 1, 9)])
def test_our_grids_conform_on_any_axes(shape):
    for partition in (hshap.Dyadic(1), hshap.Bisection(2)):
        check_partition(partition, [RNG.random(shape)])
    check_partition(ATLAS, [RNG.random((2, 8, 8))])


def quarters(image):
    return hshap.Dyadic(min_size=2)(image)


@dataclasses.dataclass(frozen=True)
class Wrong(hshap.protocols.Region):
    """A region of the quadtree with one thing wrong."""

    box: hshap.protocols.Box
    fault: str

    @property
    def index(self):
        return self.box.index

    @property
    def area(self):
        return self.box.area + (self.fault == "area")

    def split(self):
        parts = self.box.split()
        parts = {
            "overlap": (*parts, parts[0]) if parts else (),
            "one part": parts[:1],
            "gap": parts[:-1],
        }.get(self.fault, parts)
        return tuple(Wrong(part, self.fault) for part in parts)

    def __eq__(self, other):
        return self is other if self.fault == "identity" else NotImplemented

    __hash__ = object.__hash__


def wrong(fault):
    return lambda image: Wrong(quarters(image), fault)


def writes_to_the_image(image):
    if image.flags.writeable:
        image[...] = 0.0
    return quarters(image)


def other_tree_every_time(image):
    return (hshap.Dyadic(2) if next(CALLS) % 2 else hshap.Bisection(2))(image)


@pytest.mark.parametrize(
    ("partition", "rule"),
    [
        (lambda image: hshap.protocols.Box((0, 0), (4, 4)), "the root holds every pixel"),
        (wrong("area"), "area counts the pixels of index"),
        (wrong("overlap"), "parts are disjoint and cover their region"),
        (wrong("gap"), "parts are disjoint and cover their region"),
        (wrong("one part"), "parts are disjoint and cover their region"),
        (wrong("identity"), "regions that are equal and hash alike"),
        (writes_to_the_image, "the image is not written to"),
        (other_tree_every_time, "the same image gives the same tree"),
        (lambda image: 3, "regions are regions"),
        (lambda image: 1 / 0, "ZeroDivisionError: division by zero"),
    ],
)
def test_bad_partitions_are_told(partition, rule):
    with breaks(rule):
        check_partition(partition)


# Baselines

BASELINES = {
    "constant": hshap.Constant(0.3),
    "constant for each channel": hshap.Constant((0.3,)),
    "fixed": hshap.Fixed(REFERENCES[0]),
    "mean": hshap.Mean(REFERENCES),
    "blur": hshap.Blur(1.5),
    "own colour": hshap.OwnColour(),
    "references": hshap.References(REFERENCES),
    "some references": hshap.References(REFERENCES, draws=3, seed=2),
    "conditional": hshap.Conditional(hshap.Similar(REFERENCES), draws=3),
}


@pytest.mark.parametrize("name", BASELINES)
def test_our_baselines_conform(name):
    assert len(check_baseline(BASELINES[name], [RNG.random((1, 8, 8))]).passed) >= 7


def still(image):
    return Still(np.zeros((1, *image.shape)))


BUFFER = np.zeros((1, 1, 8, 8))


def shared_buffer(image):
    BUFFER[...] = image.mean()
    return lambda kept: BUFFER


def blanks_the_image(image):
    if image.flags.writeable:
        image[...] = 0.0
    return still(image)


class Moving(Still):
    def __call__(self, kept):
        return self.images + len(kept)


class StillDiffers:
    def __call__(self, image):
        return still(image)

    def still(self, shape, dtype):
        return Still(np.ones((1, *shape), dtype))


@pytest.mark.parametrize(
    ("baseline", "rule"),
    [
        (
            lambda image: Still(np.zeros(image.shape)),
            "stand-ins have the shape of the image",
        ),
        (
            lambda image: Still(np.zeros((1, *image.shape), int)),
            "stand-ins are finite floats: they hold int64",
        ),
        (
            lambda image: Still(np.full((1, *image.shape), np.nan)),
            "stand-ins are finite floats: they hold NaN",
        ),
        (
            lambda image: lambda kept: np.zeros((1 + len(kept), *image.shape)),
            "the same draws for all coalitions",
        ),
        (
            lambda image: lambda kept: RNG.random((1, *image.shape)),
            "the same coalition gets the same stand-ins",
        ),
        (shared_buffer, "images do not change each other"),
        (lambda image: Moving(np.zeros((1, *image.shape))), "ignore the shown regions"),
        (StillDiffers(), r"still\(\) agrees with the call"),
        (blanks_the_image, "the image is not written to"),
        (lambda image: None, "TypeError: 'NoneType' object is not callable"),
    ],
)
def test_bad_baselines_are_told(baseline, rule):
    with breaks(rule):
        check_baseline(baseline, [RNG.random((1, 8, 8))])


# Evaluators


@pytest.mark.parametrize(
    ("batch_size", "name"), [(None, "constant"), (1, "references"), (5, "conditional")]
)
def test_batched_conforms(batch_size, name):
    evaluator = hshap.Batched(mean, batch_size=batch_size)
    check_evaluator(evaluator, mean, REFERENCES[0], baseline=BASELINES[name])


@pytest.mark.parametrize("pool", ["sum", "max"])
def test_bags_conform(pool):
    def embed(tiles):
        return np.tanh(tiles @ np.cos(np.arange(8)).reshape(2, 4))

    def head(bags):
        return bags @ np.arange(8.0).reshape(4, 2)

    def model(batch):
        tiles = embed(batch.reshape(len(batch), 2, -1).transpose(0, 2, 1).reshape(-1, 2))
        by_bag = tiles.reshape(len(batch), -1, 4)
        return head(by_bag.sum(axis=1) if pool == "sum" else by_bag.max(axis=1))

    evaluator = hshap.Bags(embed, head, pool=pool)
    check_evaluator(evaluator, model, RNG.normal(size=(2, 8, 8)), baseline=hshap.Constant(0.1))


@pytest.mark.parametrize("kind", ["batched", "batched, channels last", "incremental"])
def test_torch_modules_conform(kind):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(4, 4, 3, stride=2, padding=1),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(4, 2),
    ).eval()

    def model(batch):
        with torch.no_grad():
            return network(torch.as_tensor(batch)).numpy()

    evaluator = {
        "batched": lambda: hshap.Batched(network),
        "batched, channels last": lambda: hshap.Batched(network, channels_last=True),
        "incremental": lambda: hshap.Incremental(network),
    }[kind]()
    image = RNG.normal(size=(3, 24, 24)).astype(np.float32)
    check_evaluator(evaluator, model, image)
    check_evaluator(evaluator, model, image, baseline=hshap.Fixed(image[:, ::-1].copy()))


class Painting:
    """A plain evaluator, with one thing wrong."""

    def __init__(self, fault=""):
        self.fault = fault

    def open_session(self):
        return self

    def put(self, array):
        return array

    def capacity(self, shape, itemsize):
        return 0 if self.fault == "capacity" else 7

    def score(self, rows):
        scores = mean(np.stack([row.painted() for row in rows]))[:, None]
        if self.fault == "writes":
            rows[0].canvas.stand_ins((), 0)[...] += 1.0
        self.calls = getattr(self, "calls", 0) + 1
        faulty = {
            "flat": scores[:, 0],
            "too few": scores[:1],
            "nan": scores * np.nan,
            "wrong": scores + 1e-3,
            "batch": scores - (0.1 if len(rows) > 1 else 0.0),
            "forgets": scores + self.calls,
        }
        return faulty.get(self.fault, scores)


def test_a_plain_evaluator_conforms():
    assert len(check_evaluator(Painting(), mean, REFERENCES[0]).passed) == 8


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        ("capacity", "a batch has room for at least one input"),
        ("flat", r"scores are finite and have a row for each input: 3 inputs gave shape \(3,\)"),
        ("too few", r"3 inputs gave shape \(1, 1\)"),
        ("nan", "there are NaN or infinite values"),
        ("wrong", "scores equal the model's on painted inputs"),
        ("batch", "scores do not depend on the other inputs of the batch"),
        ("forgets", "a second session gives the same scores"),
        ("writes", "ValueError: output array is read-only"),
    ],
)
def test_bad_evaluators_are_told(fault, rule):
    baseline = hshap.Fixed(REFERENCES[1])
    with breaks(rule):
        check_evaluator(Painting(fault), mean, REFERENCES[0], baseline=baseline)


def test_all_broken_rules_are_told():
    with breaks(r"open_session\(\) is missing"):
        check_evaluator(object(), mean, REFERENCES[0])
    with breaks(r"breaks [3-9] of \d rules") as told:
        check_evaluator(Painting("nan"), mean, REFERENCES[0])
    assert str(told.value).count("\n- ") >= 3


# Searches

SEARCHES = {
    hshap.DepthFirst(): True,
    hshap.DepthFirst(width=1): True,
    hshap.DepthFirst(keep_whole=True): True,
    hshap.DepthFirst(max_evaluations=40): False,
    hshap.DepthFirst(tolerance=0.2): False,
    hshap.Share(0.1): False,
    hshap.Share(0.0, of="finding"): True,
    hshap.Share(0.1, max_evaluations=40, of="finding"): False,
    hshap.BestFirst(): False,
    hshap.BreadthFirst(percentile=0): True,
    hshap.BreadthFirst(percentile=70): False,
    hshap.BreadthFirst(max_evaluations=60, keep_whole=True): False,
    hshap.GroupTesting(): True,
    hshap.GroupTesting(width=1): True,
    hshap.GroupTesting(share=0.2): False,
    hshap.GroupTesting(max_evaluations=20): False,
}


@pytest.mark.parametrize("search", SEARCHES, ids=repr)
def test_our_searches_conform(search):
    exact = SEARCHES[search]
    assert len(check_search(search, exact=exact).passed) >= 8 + exact


def one_level(root, draws=1):
    (game,) = yield [root]
    parts = zip(game.children, game.coefficients, strict=True)
    return hshap.protocols.SearchResult(tuple(part for part, phi in parts if phi > 0))


def every_game(root, draws=1):
    asked = [root]
    while asked:
        games = yield asked
        asked = [part for game in games for part in game.children if part.split()]
    return hshap.protocols.SearchResult(())


def starts_below(root, draws=1):
    yield list(root.split()) or [root]
    return hshap.protocols.SearchResult(())


def asks_twice(root, draws=1):
    yield [root]
    yield [root]
    return hshap.protocols.SearchResult(())


def asks_for_strangers(root, draws=1):
    yield [root]
    yield [hshap.protocols.Box((0, 0), (3, 3), rule=hshap.Dyadic(1).split)]
    return hshap.protocols.SearchResult(())


def asks_for_leaves(root, draws=1):
    (game,) = yield [root]
    while parts := [part for part in game.children if part != game.region]:
        (game,) = yield parts[:1]
    return hshap.protocols.SearchResult(())


def never_ends(root, draws=1):
    while True:
        yield [root]


def returns_a_list(root, draws=1):
    (game,) = yield [root]
    return list(game.children)


def overlapping_leaves(root, draws=1):
    (game,) = yield [root]
    return hshap.protocols.SearchResult((root, *game.children))


def unfinished_strangers(root, draws=1):
    yield [root]
    return hshap.protocols.SearchResult((), (root,))


def writes_to_games(root, draws=1):
    (game,) = yield [root]
    game.coefficients[:] = 0.0
    return hshap.protocols.SearchResult(())


def moody(root, draws=1):
    (game,) = yield [root]
    return hshap.protocols.SearchResult(game.children[: 1 + next(CALLS) % 2])


@pytest.mark.parametrize("search", [one_level, every_game])
def test_plain_functions_are_searches(search):
    assert len(check_search(search, exact=False).passed) == 9


def asks_the_same_again(root, draws):
    yield [hshap.protocols.Question(()), hshap.protocols.Question((root,))]
    yield [hshap.protocols.Question((root,))]
    return hshap.protocols.SearchResult(())


def asks_about_overlaps(root, draws):
    yield [hshap.protocols.Question(()), hshap.protocols.Question((root,))]
    yield [hshap.protocols.Question((root, root.split()[0]))]
    return hshap.protocols.SearchResult(())


def asks_about_strangers(root, draws):
    yield [hshap.protocols.Question(()), hshap.protocols.Question((root,))]
    yield [hshap.protocols.Question((hshap.protocols.Box((0, 0), (5, 5)),))]
    return hshap.protocols.SearchResult(())


def makes_games_up(root, draws):
    values = yield [hshap.protocols.Question(()), hshap.protocols.Question((root,))]
    parts = root.split() or (root,)
    scores = np.arange(2.0 ** len(parts)) + values[1][0]
    game = hshap.protocols.Game(root, parts, scores, hshap.shapley(scores), np.zeros(len(parts)))
    return hshap.protocols.SearchResult(parts[:1], games=(game,))


@pytest.mark.parametrize(
    ("search", "rule"),
    [
        (asks_the_same_again, "asks for something, and once for each"),
        (asks_about_overlaps, "questions are about disjoint regions"),
        (asks_about_strangers, "questions are about disjoint regions of the tree"),
        (makes_games_up, "has other scores"),
        (starts_below, "the game of the root first"),
        (asks_twice, "asks for something, and once for each"),
        (asks_for_strangers, "is no part of a game that it received"),
        (asks_for_leaves, "has no parts, and so no game"),
        (never_ends, "it ends, and returns a SearchResult"),
        (returns_a_list, r"it returned \[Box"),
        (overlapping_leaves, "two leaves share pixels"),
        (unfinished_strangers, "a region is unfinished, but no leaf"),
        (writes_to_games, "games are not written to"),
        (moody, "a second run gave others"),
        (one_level, "under the OR rule it finds exactly the marked regions"),
        (hshap.DepthFirst(tolerance=0.9), "under the OR rule it finds exactly"),
    ],
)
def test_bad_searches_are_told(search, rule):
    with breaks(rule):
        check_search(search)
