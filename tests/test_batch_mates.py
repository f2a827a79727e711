"""Scores must not depend on the other inputs of a batch; if they do, the run says so."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest
from oracle import any_marked, marked

torch = pytest.importorskip("torch")
from torch import nn

from hshap import (
    ArgumentError,
    Bags,
    Batched,
    Bisection,
    Constant,
    Dyadic,
    Explainer,
    Incremental,
    Tokens,
)
from hshap.evaluators.canvas import Canvas, Row, StandIns
from hshap.evaluators.incremental.cost_policy import CostPolicy
from hshap.evaluators.provenance import Provenance, provenance_of

IMAGE = np.random.default_rng(0).random((2, 16, 16), dtype=np.float32)
IMAGE[0, 12, 12] = 3.0
LARGER = np.random.default_rng(0).random((2, 48, 48), dtype=np.float32)


def explained(evaluator, image=IMAGE):
    found = Explainer(evaluator, Constant(0.0), Dyadic(4)).explain(image, target=0)
    return found, found.provenance


def values(found):
    return np.concatenate([game.values for game in found.games])


def centred(batch):
    """Compare each input with the mean of the batch."""
    scores = batch.reshape(len(batch), -1).sum(1)
    return scores - scores.mean()


def stretched(batch):
    """Divide by the largest pixel of the batch."""
    return (batch / (batch.max() + 1e-9)).reshape(len(batch), -1).sum(1)


def ranked(batch):
    scores = np.exp(batch.reshape(len(batch), -1).mean(1))
    return scores / scores.sum()


def by_place(batch):
    return batch.reshape(len(batch), -1).sum(1) + np.arange(len(batch))


def by_size(batch):
    return batch.reshape(len(batch), -1).sum(1) * (1 + len(batch))


@pytest.mark.parametrize("model", [centred, stretched, ranked, by_place, by_size])
def test_a_model_that_looks_at_the_batch_runs_one_input_at_a_time(model):
    with pytest.warns(RuntimeWarning, match="depend on the other inputs of a batch .* alone"):
        found, provenance = explained(Batched(model))
    assert provenance.batches == "dependent"
    alone, _ = explained(Batched(model, batch_size=1))
    assert np.array_equal(values(found), values(alone))


def test_inputs_that_run_one_at_a_time_need_no_check():
    _, provenance = explained(Batched(any_marked, batch_size=1))
    assert provenance.batches == "one at a time"
    assert provenance.full > 0


def far_from_best(batch):
    scores = batch.reshape(len(batch), -1).sum(1)
    return scores - scores.max()


def far_from_worst(batch):
    scores = -batch.reshape(len(batch), -1).sum(1)
    return scores - scores.min()


def far_from_any(batch):
    return any_marked(batch) - any_marked(batch).max()


def best_alone(batch):
    """Give a score to the best input of the batch only."""
    scores = batch.reshape(len(batch), -1).sum(1)
    return np.where(scores == scores.max(), scores, 0.0)


EXTREMA = [far_from_best, far_from_worst, far_from_any, best_alone, stretched]


@pytest.mark.parametrize("model", EXTREMA)
@pytest.mark.parametrize("shares", [(9, 1, 1, 1), (1, 9, 1, 1), (9, 9, 9, 9), (9, -1, -1, -1)])
@pytest.mark.parametrize("partition", [Dyadic(4), Bisection(4)])
@pytest.mark.filterwarnings("ignore:the model's scores depend on the other inputs")
def test_a_score_relative_to_an_extremum_of_the_batch_does_no_harm(model, shares, partition):
    # The least shown part may hold the brightest pixel, or have the best score, of the batch.
    image = np.zeros((1, 8, 8))
    image[0, 1::4, 1::4] = np.reshape(shares, (2, 2))
    found = Explainer(model, Constant(0.0), partition).explain(image, target=0)
    alone = Explainer(Batched(model, batch_size=1), Constant(0.0), partition).explain(image, 0)
    assert np.array_equal(values(found), values(alone))


def test_a_dependence_that_begins_in_the_second_batch_is_told():
    model = lambda batch: batch.reshape(len(batch), -1).sum(1) + 9.0 * (len(batch) > 16)
    image = np.random.default_rng(0).random((1, 16, 16))
    explainer = Explainer(model, Constant(0.0), Dyadic(4))
    with pytest.warns(RuntimeWarning, match="alone from now on .the 16 inputs before ran in batch"):
        found = explainer.explain(image, target=0)
    alone = Explainer(Batched(model, batch_size=1), Constant(0.0), Dyadic(4)).explain(image, 0)
    np.testing.assert_allclose(values(found), values(alone))


def test_the_check_costs_three_inputs():
    sizes = []

    def model(batch):
        sizes.append(len(batch))
        return any_marked(batch)

    found, provenance = explained(Batched(model))
    assert provenance == Provenance(full=found.evaluations, batches="independent")
    assert sum(sizes) == found.evaluations + 3


def test_another_number_of_scores_in_a_batch_is_told():
    model = lambda batch: np.ones((len(batch), 1 + (len(batch) > 1)))
    with pytest.warns(RuntimeWarning, match="has 2 scores in a batch, 1 alone"):
        explained(Batched(model))


def test_the_check_can_be_left_out():
    seen = []
    model = lambda batch: seen.append(len(batch)) or any_marked(batch)
    found, provenance = explained(Batched(model, check_batches=False))
    assert sum(seen) == found.evaluations
    assert provenance.batches == "not checked"
    with pytest.raises(ArgumentError, match="check_batches must be True or False"):
        Batched(model, check_batches="yes")


def test_a_model_with_random_scores_is_told_apart():
    rng = np.random.default_rng(0)
    with pytest.warns(RuntimeWarning, match="two scores for one input"):
        _, provenance = explained(Batched(lambda batch: rng.random(len(batch))))
    assert provenance.batches == "not repeatable"


@pytest.mark.parametrize(
    "model",
    [
        lambda batch: 1e8 + batch.reshape(len(batch), -1).sum(1, dtype=np.float64),
        lambda batch: np.stack([any_marked(batch), np.full(len(batch), -np.inf)], 1),
        lambda batch: np.zeros(len(batch)),
    ],
    ids=["far from zero", "infinite", "constant"],
)
def test_other_models_pass(model):
    _, provenance = explained(Batched(model))
    assert provenance.batches == "independent"


LOW_PRECISION = """
import torch
with torch.inference_mode():
    for size in (3, 64, 8 * 14 * 14):
        for batch in (1, 2, 5, 16, 33):
            torch.nn.Linear(size, 3).bfloat16()(torch.rand(batch, size).bfloat16())
"""


def test_models_in_low_precision_pass():
    # Virtual machines may announce instructions that they do not run: the process then ends.
    probe = subprocess.run([sys.executable, "-c", LOW_PRECISION], check=False)  # noqa: S603
    if probe.returncode:
        pytest.skip("torch ends with an illegal instruction in bfloat16 on this processor")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 3))
    for evaluator in (Batched(net.eval().bfloat16()), Batched(net.float(), autocast="bfloat16")):
        _, provenance = explained(evaluator)
        assert provenance.batches == "independent"


class TestBatchNormWithoutStatistics:
    def network(self):
        torch.manual_seed(0)
        norm = nn.BatchNorm2d(4, track_running_stats=False)
        return nn.Sequential(nn.Conv2d(2, 4, 3), norm, nn.ReLU(), nn.Flatten(), nn.LazyLinear(3))

    @pytest.mark.parametrize("way", [Batched, Incremental])
    def test_it_runs_one_input_at_a_time_and_says_so(self, way):
        net = self.network().eval()
        net(torch.zeros(1, 2, 16, 16))
        with pytest.warns(RuntimeWarning, match=r"'1' \(BatchNorm2d\) has no running statistics"):
            found, provenance = explained(way(net))
        assert provenance.batches == "dependent"
        assert provenance.incremental == 0
        with torch.inference_mode():
            assert found.score == pytest.approx(float(net(torch.from_numpy(IMAGE)[None])[0, 0]))
        alone, _ = explained(Batched(net, batch_size=1))
        assert np.array_equal(values(found), values(alone))

    def test_with_one_input_at_a_time_asked_for_there_is_nothing_to_say(self):
        net = self.network().eval()
        net(torch.zeros(1, 2, 16, 16))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            explained(Batched(net, batch_size=1))

    def test_a_norm_hidden_in_a_function_is_found_by_the_check(self):
        class Hidden(nn.Module):
            def forward(self, x):
                return nn.functional.batch_norm(x, None, None, training=True).amax((2, 3))

        for way in (Batched(Hidden().eval()), incremental(Hidden().eval())):
            with pytest.warns(RuntimeWarning, match="depend on the other inputs|runs every input"):
                _, provenance = explained(way)
            assert provenance.batches == "dependent"


def incremental(net):
    return Incremental(net, cost_policy=CostPolicy.always())


class TestIncrementalSaysHow:
    def network(self):
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)
        ).eval()

    def test_inputs_from_patches_are_counted(self):
        found, provenance = explained(incremental(self.network()), LARGER)
        assert provenance.comparison == "passed"
        assert provenance.incremental > 0
        assert provenance.full + provenance.incremental == found.evaluations
        assert "incremental; comparison: passed" in provenance.sentence

    def test_a_comparison_that_fails_is_told(self):
        class Differs(nn.Module):
            def __init__(self, net):
                super().__init__()
                self.net = net

            def forward(self, x):
                return self.net(x if isinstance(x, torch.Tensor) else x * 2)

        net = Differs(self.network()).eval()
        with pytest.warns(RuntimeWarning, match="differ from those of a full forward pass"):
            found, provenance = explained(incremental(net), LARGER)
        assert provenance.comparison == "failed"
        assert (provenance.full, provenance.incremental) == (found.evaluations, 0)
        assert "differ from" in provenance.sentence

    def test_a_network_without_patches_says_why(self):
        net = nn.Sequential(nn.Flatten(), nn.Linear(512, 2)).eval()
        with pytest.warns(RuntimeWarning, match="none of its operations"):
            _, provenance = explained(incremental(net))
        assert provenance.comparison == "not made"
        assert "none of its operations" in provenance.reason


def test_a_session_of_a_third_party_need_not_tell():
    class Session:
        def put(self, array):
            return array

        def capacity(self, shape, itemsize):
            return 8

        def score(self, rows):
            return any_marked(np.stack([row.painted() for row in rows]))[:, None]

    assert provenance_of(Session(), position=0) == Provenance()


def test_bags_are_checked_too():
    def head(bags):
        return bags[:, :1] - bags[:, :1].mean()

    with pytest.warns(RuntimeWarning, match="depend on the other inputs"):
        _, provenance = explained(Bags(lambda tiles: tiles, head))
    assert provenance.batches == "dependent"


def test_tokens_are_checked_too():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.BatchNorm1d(2, track_running_stats=False)

        def embed(self, images):
            return nn.functional.pad(images.flatten(2).mT, (0, 0, 2, 0))

        def head(self, tokens):
            return tokens.amax(1)

    class Swapped(nn.Module):
        def forward(self, tokens):
            return tokens - tokens.mean(0)

    known, found = Model().eval(), Model().eval()
    known.blocks = nn.Identity().eval()
    found.blocks = Swapped().eval()
    _, provenance = explained(Tokens(known, patch=1, prefix=2))
    assert provenance.batches == "independent"
    with pytest.warns(RuntimeWarning, match="depend on the other inputs"):
        _, provenance = explained(Tokens(found, patch=1, prefix=2))
    assert provenance.batches == "dependent"
    with pytest.warns(RuntimeWarning, match="no running statistics"):
        Tokens(Model().eval(), patch=1).open_session()


def test_rows_of_one_batch_are_rescored_when_the_batch_matters():
    image = marked((8, 8), [9])
    session = Batched(centred).open_session()
    root = Dyadic(2)(image)
    stand_ins = StandIns(Constant(0.0)(image), image.shape, session.put)
    canvas = Canvas(image, stand_ins, root, put=session.put, position=0)
    rows = [Row(canvas, kept, 0) for kept in ((), (root,), *((part,) for part in root.split()))]
    with pytest.warns(RuntimeWarning, match="alone"):
        assert not session.score(rows).any()
    assert session.capacity(image.shape, 4) == 1
