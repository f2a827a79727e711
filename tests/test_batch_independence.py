"""Scores must not depend on the other inputs of a batch; if they do, the run says so."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from oracle import any_marked

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
from hshap.protocols import CostPolicy, Provenance

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


def test_the_check_costs_three_inputs_and_can_be_left_out():
    for options, more, told in (
        ({}, 3, "independent"),
        ({"check_batches": False}, 0, "not checked"),
        ({"batch_size": 1}, 0, "one at a time"),
    ):
        sizes = []
        model = lambda batch, sizes=sizes: sizes.append(len(batch)) or any_marked(batch)
        found, provenance = explained(Batched(model, **options))
        assert provenance == Provenance(full=found.evaluations, batches=told)
        assert sum(sizes) == found.evaluations + more
    with pytest.raises(ArgumentError, match="check_batches must be True or False"):
        Batched(any_marked, check_batches="yes")


def test_another_number_of_scores_in_a_batch_is_told():
    model = lambda batch: np.ones((len(batch), 1 + (len(batch) > 1)))
    with pytest.warns(RuntimeWarning, match="has 2 scores in a batch, 1 alone"):
        explained(Batched(model))


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


@pytest.mark.exhaustive  # virtual machines may announce instructions that they do not run
def test_models_in_low_precision_pass():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 3))
    for evaluator in (Batched(net.eval().bfloat16()), Batched(net.float(), autocast="bfloat16")):
        _, provenance = explained(evaluator)
        assert provenance.batches == "independent"


class Hidden(nn.Module):
    """A norm without statistics that no layer shows."""

    def forward(self, x):
        return nn.functional.batch_norm(x, None, None, training=True).amax((2, 3))


@pytest.mark.parametrize("way", [Batched, Incremental])
def test_a_norm_without_statistics_runs_one_input_at_a_time(way):
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(4, track_running_stats=False)
    net = nn.Sequential(nn.Conv2d(2, 4, 3), norm, nn.Flatten(), nn.Linear(784, 3)).eval()
    with pytest.warns(RuntimeWarning, match=r"'1' \(BatchNorm2d\) has no running statistics"):
        found, provenance = explained(way(net))
    assert (provenance.batches, provenance.incremental) == ("dependent", 0)
    with torch.inference_mode():
        assert found.score == pytest.approx(float(net(torch.from_numpy(IMAGE)[None])[0, 0]))
    with warnings.catch_warnings():  # nothing to say if the caller asks for it
        warnings.simplefilter("error")
        alone, _ = explained(Batched(net, batch_size=1))
    assert np.array_equal(values(found), values(alone))
    options = {"cost_policy": CostPolicy.always()} if way is Incremental else {}
    with pytest.warns(RuntimeWarning, match="depend on the other inputs|runs every input"):
        _, provenance = explained(way(Hidden().eval(), **options))
    assert provenance.batches == "dependent"


def test_the_provenance_counts_inputs_from_patches():
    layers = nn.Conv2d(2, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)
    net = nn.Sequential(*layers).eval()
    found, made = explained(Incremental(net, cost_policy=CostPolicy.always()), LARGER)
    assert made.comparison == "passed"
    assert 0 < made.incremental == found.evaluations - made.full
    assert "incremental; comparison: passed" in made.sentence


def test_a_session_of_a_third_party_need_not_tell():
    class Session:
        def open_session(self):
            return self

        def put(self, array):
            return array

        def capacity(self, shape, itemsize):
            return 8

        def score(self, rows):
            return any_marked(np.stack([row.painted() for row in rows]))[:, None]

    assert explained(Session())[1] == Provenance()


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
