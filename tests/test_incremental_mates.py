"""Networks whose scores depend on the other inputs of a batch get exact scores, and a warning."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn

from hshap import Batched, Bisection, Box, Constant, CostPolicy, Explainer, Incremental
from hshap.errors import ArgumentError
from hshap.evaluators.canvas import Canvas, Row, StandIns
from hshap.evaluators.incremental.comparison import OnCrop


class Middle(nn.Module):
    """Takes half of the mean over the batch from every activation."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 4, 3, padding=1)

    def forward(self, x):
        x = torch.relu(self.first(x))
        x = x - 0.5 * x.mean(0, keepdim=True)
        return torch.relu(self.last(x)).mean((2, 3))


class Head(nn.Module):
    """Takes the largest score of the batch from every score."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 8, 3, 2, 1), nn.Linear(8, 4)

    def forward(self, x):
        y = self.last(torch.relu(self.first(x)).mean((2, 3)))
        return y - 0.5 * y.amax(0, keepdim=True)


class OneSize(Head):
    """The same for images of one size."""

    def __init__(self, side):
        super().__init__()
        self.last = nn.Linear(8 * (side // 16) ** 2, 4)

    def forward(self, x):
        y = self.last(nn.functional.avg_pool2d(torch.relu(self.first(x)), 8).flatten(1))
        return y - 0.5 * y.amax(0, keepdim=True)


class Independent(Head):
    """A network like these whose scores do not depend on the batch."""

    def forward(self, x):
        return self.last(torch.relu(self.first(x)).mean((2, 3)))


def explained(way, side, *, middle=None):
    image = np.random.default_rng(0).random((3, side, side), dtype=np.float32)
    if middle is not None:
        image[:, side // 4 : -side // 4, side // 4 : -side // 4] = middle
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        explainer = Explainer(way, Constant(0.4), Bisection(side // 8))
        found = explainer.explain(image, target=0)
    values = np.concatenate([game.values for game in found.games])
    return values, [str(each.message) for each in told], found.provenance


@pytest.mark.parametrize("middle", [None, 0.4], ids=["noise", "one colour in the middle"])
@pytest.mark.parametrize("policy", [CostPolicy(), CostPolicy.always()], ids=["usual", "always"])
@pytest.mark.parametrize("side", [96, 416], ids=["small", "large"])
@pytest.mark.parametrize("kind", [Middle, Head, OneSize])
def test_scores_that_depend_on_the_batch_are_those_of_single_inputs(kind, side, policy, middle):
    torch.manual_seed(0)
    module = (kind(side) if kind is OneSize else kind()).eval()
    expected, _, _ = explained(Batched(module, batch_size=1), side, middle=middle)
    found, told, provenance = explained(
        Incremental(module, cost_policy=policy), side, middle=middle
    )
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
    assert any("depend on the other inputs of a batch" in message for message in told)
    assert provenance.batches == "dependent"
    assert provenance.reason


class Faint(nn.Module):
    """Takes a share of the batch's mean from scores that are nearly the same for parts of noise."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.SiLU()),
            *(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Hardswish()),
            *(nn.Conv2d(8, 12, 1), nn.BatchNorm2d(12), nn.ReLU6(), nn.MaxPool2d(3, 2, 1)),
            *(nn.Conv2d(12, 4, 3), nn.Mish(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        )

    def forward(self, x):
        y = self.body(x)
        return y - 0.3 * y.mean(0, keepdim=True)


def test_a_crop_whose_inputs_score_nearly_alike_does_not_clear_the_network():
    module, image = Faint().eval(), np.random.default_rng(0).random((3, 384, 384)).astype("f")
    torch.manual_seed(1)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)
    image[:, 10:80, 10:80] = 6.0  # outside of the crop in the middle that is compared
    root = Box((0, 0), (384, 384))
    places = range(0, 384, 96)
    shown = [(), (root,), *((Box((a, b), (a + 96, b + 96)),) for a in places for b in places)]
    scores, told = [], []
    on_patches = Incremental(module, cost_policy=CostPolicy.always())
    for way in (Batched(module, batch_size=1), on_patches):
        session = way.open_session()
        stand_ins = StandIns(Constant(0.4)(image), image.shape, session.put)
        canvas = Canvas(image, stand_ins, root, put=session.put, position=0)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            scores.append(session.score([Row(canvas, regions, 0) for regions in shown]))
        told.append([str(one.message) for one in said])
    assert np.abs(scores[1] - scores[0]).max() <= 1e-5 * np.abs(scores[0]).max()
    assert any("depend on the other inputs of a batch" in message for message in told[1])


def on_crop(expected, share, error=0.0):
    """Scores of two inputs on a crop, each with a share of the other one's score."""
    mixed = (1 - share) * expected + share * expected[::-1] + error
    return OnCrop(np.tile(mixed, (2, 1)), expected, bytes_per_pixel=1.0, seconds_per_pixel=1.0)


@pytest.mark.parametrize("apart", [1e-3, 1e-2, 0.1, 1.0])
def test_a_crop_with_a_share_of_one_input_in_the_other_does_not_clear_the_network(apart):
    expected, epsilon = np.array([[1.0, 0.5], [1.0 - apart, 0.5]]), 1e-7
    assert on_crop(expected, share=0.0).tells_mates_apart(epsilon)
    for share in (0.002, 0.01, 0.3):
        crop = on_crop(expected, share)
        assert not (crop.passes(epsilon) and crop.tells_mates_apart(epsilon))


@pytest.mark.parametrize(
    ("apart", "error"), [(0.0, 0.0), (5e-4, 0.0), (1e-2, 2e-5), (np.nan, 0.0), (0.1, np.nan)]
)
def test_a_crop_tells_nothing_of_mates_whose_scores_differ_no_more_than_errors_may(apart, error):
    expected = np.array([[1.0, 0.5], [1.0 - apart, 0.5]])
    assert not on_crop(expected, share=0.0, error=error).tells_mates_apart(1e-7)


@pytest.mark.parametrize("middle", [None, 0.4], ids=["noise", "one colour in the middle"])
@pytest.mark.parametrize("side", [96, 416], ids=["small", "large"])
def test_other_networks_run_on_patches_and_are_found_independent(side, middle):
    torch.manual_seed(0)
    module = Independent().eval()
    way = Incremental(module, cost_policy=CostPolicy.always())
    _, told, provenance = explained(way, side, middle=middle)
    assert not told
    assert provenance.batches == "independent"
    assert provenance.incremental > provenance.full


def test_boxes_in_one_batch_do_not_change_each_other():
    torch.manual_seed(0)
    module, scores = Head().eval(), []
    image = np.random.default_rng(0).random((3, 416, 416), dtype=np.float32)
    root = Box((0, 0), (416, 416))
    boxes = [Box((a, b), (a + 104, b + 104)) for a in (0, 104, 208) for b in (0, 104, 208)]
    for count in (1, 9):
        session = Incremental(module, cost_policy=CostPolicy.always()).open_session()
        stand_ins = StandIns(Constant(0.4)(image), image.shape, session.put)
        canvas = Canvas(image, stand_ins, root, put=session.put, position=0)
        rows = [Row(canvas, (box,), 0) for box in boxes]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            session.score([Row(canvas, (root,), 0)])
            parts = [session.score(rows[n : n + count]) for n in range(0, 9, count)]
        scores.append(np.concatenate(parts))
    np.testing.assert_allclose(scores[1], scores[0], rtol=1e-5)


def test_batches_of_automatic_size_are_refused():
    with pytest.raises(ArgumentError, match="batch_size must be a whole number, got 'auto'"):
        Incremental(Head().eval(), batch_size="auto")
