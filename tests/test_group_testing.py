"""Group testing: exact under the OR rule, certified by measurements, honest where it fails."""

from __future__ import annotations

from math import comb, log2

import by_hand
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import any_marked, marked, nodes, same_game

import hshap
from hshap import (
    ArgumentError,
    Bisection,
    Constant,
    DepthFirst,
    Dyadic,
    Explainer,
    Explanation,
    GroupTesting,
    References,
    Superpixels,
    theory,
)
from hshap.protocols import Box, Question, SearchResult

LABELS = np.kron(np.arange(16).reshape(4, 4), np.ones((3, 3), int))
PARTITIONS = {
    "pixels": Bisection(1),
    "quadtree": Dyadic(1),
    "cells": Bisection(3),
    "cells of a quadtree": Dyadic((2, 3)),
    "shifted": hshap.Shifted(Dyadic(2), (5, -4)),
    "labels": Superpixels.from_labels(LABELS, parts=4),
    "one leaf": Dyadic(99),
}
SMALL = settings(max_examples=8, deadline=None)


def explain(image, search=None, partition=None, model=any_marked, baseline=None):
    return Explainer(
        model,
        baseline=baseline or Constant(0.0),
        partition=partition or Bisection(1),
        search=search or GroupTesting(),
    ).explain(image, target=0)


def any_of_sets(sets):
    """Return a model that scores 1 if all pixels of one of the sets are shown."""

    def model(batch):
        flat = np.asarray(batch).reshape(len(batch), -1) > 0.5
        return np.array([float(any(row[list(one)].all() for one in sets)) for row in flat])

    return model


def weighted(weights):
    return lambda batch: (np.asarray(batch)[:, 0] * weights).sum(axis=(1, 2))


# Under the OR rule.


@pytest.mark.parametrize("name", PARTITIONS)
@SMALL
@given(points=st.sets(st.integers(0, 143), max_size=9))
def test_answers_equal_depth_first(name, points):
    image, partition = marked((12, 12), points), PARTITIONS[name]
    found, played = explain(image, partition=partition), explain(image, DepthFirst(), partition)
    ends = [one for one in nodes(played.games[0].region) if not one.split()]
    assert set(found.leaves) == {leaf for leaf in ends if (image[0][leaf.index] > 0.5).any()}
    assert set(found.leaves) == set(played.leaves)
    for kind in ("saliency", "coefficients", "attribution"):
        assert np.allclose(getattr(found, kind)(), getattr(played, kind)(), atol=1e-12), kind
    by_region = {game.region: game for game in played.games}
    if points:
        assert by_region.keys() == {game.region for game in found.games}
        assert all(same_game(game, by_region[game.region]) for game in found.games)
    assert not found.certificate.reason
    assert found.certificate.gap == 0.0
    assert explain(image, GroupTesting(1.0), partition).leaves == ()  # no more than the tolerance
    assert found.certificate.questions == found.evaluations


@SMALL
@given(
    points=st.sets(st.integers(0, 255), max_size=6), dense=st.booleans(), width=st.integers(1, 9)
)
def test_every_question_is_one_new_input(points, dense, width):
    seen = []

    def counting(batch):
        seen.extend(np.array(one) for one in batch)
        return any_marked(batch) if dense else batch.mean(axis=(1, 2, 3))

    model = hshap.Batched(counting, check_batches=False)
    image = marked((16, 16), points) + np.float32(0.25)  # no region is blank
    found = explain(image, GroupTesting(0.01), Bisection(4), model)
    assert found.evaluations == len(seen) == len({one.tobytes() for one in seen})
    narrow = explain(image, GroupTesting(0.01, width=width), Bisection(4), model)
    assert set(narrow.leaves) == set(found.leaves)


@pytest.mark.parametrize(("findings", "most"), [(1, 1.7), (4, 1.3), (10, 1.3)])
def test_questions_stay_near_the_floor(findings, most):
    spent = []
    for seed in range(4):
        points = np.random.default_rng([seed, findings]).choice(4096, findings, replace=False)
        found = explain(marked((64, 64), points.tolist()))
        assert len(found.leaves) == findings
        spent.append(found.evaluations)
    floor = theory.question_floor(4096, findings)
    assert floor == pytest.approx(log2(comb(4096, findings)))
    assert np.mean(spent) <= most * floor


@pytest.mark.parametrize(
    ("partition", "costs"), [(Bisection(2), (18, 55, 111)), (Dyadic((2, 3)), (18, 52, 109))]
)
def test_trees_of_many_leaves_are_not_listed(partition, costs):
    """Their leaves take a place for each pixel, so that places and leaves are told apart."""
    rng = np.random.default_rng(0)
    for count, cost in zip((1, 4, 9), costs, strict=True):
        image = marked((96, 160), rng.choice(96 * 160, count, replace=False))
        found, played = explain(image, partition=partition), explain(image, DepthFirst(), partition)
        assert set(found.leaves) == set(played.leaves)
        assert np.allclose(found.attribution(), played.attribution())
        assert not found.certificate.reason
        assert found.evaluations == cost


def both_or_one(batch):
    """Two pixels act together; a third is enough alone."""
    return any_of_sets([{9, 60}, {33}])(batch)


# Evaluations, leaves and inferred games: by default, with two questions at a time, with five
# checks, and of a budget of 24. A change of these numbers is a change of what a run costs.
COSTS = {
    "few": [(24, 3, 11), (24, 3, 11), (29, 3, 10), (24, 3, 11)],
    "many": [(114, 12, 79), (114, 12, 78), (119, 12, 79), (24, 19, 47)],
    "dense": [(105, 48, 54), (97, 48, 53), (110, 48, 53), (24, 7, 19)],
    "lazy": [(44, 3, 30), (43, 3, 30), (49, 3, 30), (24, 7, 23)],
    "graded": [(40, 3, 0), (40, 3, 0), (40, 3, 0), (24, 3, 11)],
    "together": [(45, 2, 0), (45, 2, 0), (45, 2, 0), (24, 2, 11)],
}
PROBLEMS = {
    "few": (any_marked, marked((8, 8), [9, 40, 41])),
    "many": (any_marked, marked((32, 32), np.random.default_rng(0).choice(1024, 12, False))),
    "dense": (any_marked, marked((8, 8), [i for i in range(64) if i % 4])),
    "lazy": (any_marked, marked((64, 64), [5, 900, 4000])),  # a tree that is not listed whole
    "graded": (lambda batch: batch.mean(axis=(1, 2, 3)), marked((8, 8), [9, 40, 41])),
    "together": (both_or_one, np.ones((1, 8, 8))),
}


@pytest.mark.parametrize("name", COSTS)
def test_costs_are_those_on_record(name):
    model, image = PROBLEMS[name]
    every = ({}, {"width": 2}, {"checks": 5}, {"max_evaluations": 24})
    for options, told in zip(every, COSTS[name], strict=True):
        found = explain(image, GroupTesting(**options), model=model)
        assert (found.evaluations, len(found.leaves), found.certificate.inferred) == told


def test_draws_have_standard_errors(rng):
    image = marked((8, 8), [3, 40])
    baseline = References(rng.random((4, 1, 8, 8)) * 0.3)
    scaled = lambda batch: batch.max(axis=(1, 2, 3))
    found = explain(image, GroupTesting(0.5), baseline=baseline, model=scaled)
    played = explain(image, DepthFirst(0.2), baseline=baseline, model=scaled)
    assert set(found.leaves) == set(played.leaves)
    assert found.draws == 4
    assert all(np.isfinite(found.parts[leaf].error) for leaf in found.leaves)


# Where the rule fails.


@SMALL
@given(
    sets=st.lists(st.sets(st.integers(0, 63), min_size=1, max_size=3), min_size=1, max_size=4),
)
def test_findings_keep_the_score(sets):
    """Models that need several things at once, in any of several ways."""
    image, model = np.ones((1, 8, 8)), any_of_sets(sets)
    found = explain(image, model=model)
    root = found.games[0].region
    others = [one for one in nodes(root) if not one.split() and one not in found.leaves]
    assert by_hand.worth(model, image, found.leaves) == found.certificate.kept == 1.0
    assert by_hand.worth(model, image, others) == found.certificate.left == 0.0
    alone = [by_hand.worth(model, image, [leaf]) for leaf in found.leaves]
    assert (not found.certificate.reason) == (min(alone) == 1.0)
    if found.certificate.reason:
        assert found.certificate.word == "measured"
        assert found.certificate.reason in str(found.certificate)


@SMALL
@given(seed=st.integers(0, 2**31), signed=st.booleans(), tolerance=st.sampled_from([0.0, 0.3]))
def test_measured_games_are_exact(seed, signed, tolerance):
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(8, 8)) if signed else rng.random((8, 8)) ** 8
    image, model = np.ones((1, 8, 8)), weighted(weights)
    found = explain(image, GroupTesting(tolerance), Bisection(2), model)
    for game in found.games:
        if not game.inferred:
            _, values, phi = by_hand.game(model, image, game.region)
            assert game.values == pytest.approx(values, abs=1e-5)
            assert game.coefficients == pytest.approx(phi, abs=1e-5)
    alone = [found.parts[leaf].alone for leaf in found.leaves]
    assert alone == pytest.approx([by_hand.worth(model, image, [leaf]) for leaf in found.leaves])
    if not found.certificate.reason and found.leaves:
        assert min(alone) >= found.score - max(tolerance, 1e-5 * abs(found.score))


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    points=st.sets(st.integers(0, 15), min_size=1, max_size=3),
    flips=st.sampled_from([0.0, 0.02, 0.1]),
)
def test_certificates_agree_with_every_answer(seed, points, flips):
    """Models that answer some coalitions against the OR rule, in any direction."""
    flipped = np.random.default_rng(seed).random(2**16) < flips
    seen = []

    def model(batch):
        shown = np.asarray(batch).reshape(len(batch), -1) > 0.5
        answers = shown[:, list(points)].any(1) ^ flipped[shown @ (1 << np.arange(16))]
        seen.extend(zip(shown, answers, strict=True))
        return answers.astype(float)

    evaluator = hshap.Batched(model, check_batches=False)
    found = explain(np.ones((1, 4, 4)), model=evaluator)
    marked_leaves = np.zeros((4, 4), dtype=bool)
    for leaf in found.leaves:
        marked_leaves[leaf.index] = True
    agree = all((shown & marked_leaves.ravel()).any() == answer for shown, answer in seen[1:])
    if found.score > 0 == found.baseline_score:
        assert (not found.certificate.reason) == agree
    if not flips:
        assert not found.certificate.reason


def pixels_of(batch):
    return np.asarray(batch).reshape(len(batch), -1) > 0.5


def wrong_values(found, model, image):
    """Return the largest distance of any value of any game from that of the model itself."""
    return max(
        abs(
            value
            - by_hand.worth(model, image, [part for i, part in enumerate(parts) if n >> i & 1])
        )
        for game in found.games
        for parts in [game.children]
        for n, value in enumerate(game.values)
    )


def table_model(values):
    """Return a model that looks the score of each set of pixels up."""
    return lambda batch: values[pixels_of(batch) @ (1 << np.arange(pixels_of(batch).shape[1]))]


def monotone_table(rng, pixels):
    """Draw the scores of all sets: those of a set are at least those of the sets in it.

    A few sets have a score, many of them a single pixel, and some of them a lower score.
    """
    values = np.zeros(2**pixels)
    for _ in range(rng.integers(1, 5)):
        members = rng.choice(pixels, rng.choice([1, 1, 1, 2, 3]), replace=False)
        values[(1 << members).sum()] = rng.choice([1.0, 1.0, 1.0, 0.9, 0.6])
    for place in range(pixels):
        halves = values.reshape(-1, 2, 2**place)
        np.maximum(halves[:, 1], halves[:, 0], out=halves[:, 1])
    return values


def drawn_model(rng, pixels):
    """Draw a model of one of several kinds; most of them break the OR rule."""
    chosen = rng.choice(pixels, rng.integers(1, 5), replace=False)
    kinds = {
        "or": lambda batch: pixels_of(batch)[:, chosen].any(1) * 1.0,
        "and": lambda batch: pixels_of(batch)[:, chosen].all(1) * 1.0,
        "parity": lambda batch: pixels_of(batch)[:, chosen].sum(1) % 2 * 1.0,
        "sum": lambda batch: pixels_of(batch)[:, chosen].sum(1) * 1.0,
        "absence": lambda batch: 1.0 - pixels_of(batch)[:, chosen].any(1),
        "random": table_model(rng.random(2**pixels)),
        "rare flips": table_model((rng.random(2**pixels) < 0.05) * 1.0),
        "monotone": table_model(monotone_table(rng, pixels)),
    }
    return kinds[rng.choice(list(kinds))]


def drawn_run(rng, model, tolerance=0.0):
    partition = [Bisection(1), Dyadic(1), Bisection((1, 2))][rng.integers(3)]
    search = GroupTesting(tolerance, checks=int(rng.choice([0, 0, 3, 1000])))
    evaluator = hshap.Batched(model, check_batches=False)
    return explain(np.ones((1, 3, 4)), search, partition, evaluator)


def test_measured_values_are_right():
    words = []
    for seed in range(150):
        rng = np.random.default_rng(seed)
        model = drawn_model(rng, 12)
        found = drawn_run(rng, model)
        made = found.certificate
        words.append(made.word)
        assert made.inferred == sum(game.inferred for game in found.games)
        if made.word == "measured":
            assert wrong_values(found, model, np.ones((1, 3, 4))) < 1e-9, seed
            continue
        # Without a proof, every line about the run says that values were not measured.
        assert "inferred" in str(made)
        assert "inferred" in found.how_sure.reason or found.how_sure.word == "do not trust"
        assert made.word in repr(found)
        assert ("not proven" in str(made)) == (made.word == "supported")
    assert min(words.count("measured"), words.count("supported")) > 20


def test_supported_values_are_right():
    supported = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        model, tolerance = table_model(monotone_table(rng, 12)), float(rng.choice([0.0, 0.1, 0.3]))
        found = drawn_run(rng, model, tolerance)
        assert found.certificate.word != "not supported"
        supported += found.certificate.word == "supported"
        assert wrong_values(found, model, np.ones((1, 3, 4))) <= tolerance + 1e-9, seed
    assert supported > 20


def parity_models(checks):
    """Explain the parity of some pixels; return each run with its largest error."""
    for seed in range(25):
        rng = np.random.default_rng(seed)
        chosen = rng.choice(64, rng.integers(1, 8), replace=False)
        model = lambda batch, chosen=chosen: pixels_of(batch)[:, chosen].sum(1) % 2 * 1.0
        evaluator = hshap.Batched(model, check_batches=False)
        found = explain(np.ones((1, 8, 8)), GroupTesting(checks=checks), Dyadic(1), evaluator)
        yield found, wrong_values(found, model, np.ones((1, 8, 8)))


def test_parity_is_never_called_proven():
    """Answers of parity models contradict nothing; checks at random find most of them."""
    wrong = [found for found, error in parity_models(checks=0) if error > 0.5]
    assert len(wrong) > 8
    assert {found.certificate.word for found in wrong} == {"supported"}
    assert all("not proven" in str(found.certificate) for found in wrong)
    assert all("holds" not in repr(found) + found.how_sure.reason for found in wrong)
    assert sum(error > 0.5 for _, error in parity_models(checks=8)) <= 1
    for found, error in parity_models(checks=10**6):
        assert error < 1e-9
        assert found.certificate.word == "measured"


def absence(batch):
    """Every area lowers the score, so no rule about relevant areas holds."""
    return 1.0 - any_marked(batch)


def in_company(batch):
    """One pixel has the score alone, and a third of it in company of up to 40 others."""
    shown = pixels_of(batch)
    crowd = shown.sum(1)
    return shown[:, 5] * np.where((crowd > 1) & (crowd <= 40), 1 / 3, 1.0)


@pytest.mark.parametrize("model", [absence, in_company])
def test_contradicting_answers_are_told(model):
    found = explain(np.ones((1, 8, 8)), model=hshap.Batched(model, check_batches=False))
    assert "contradict the OR rule" in found.certificate.reason
    assert found.certificate.word == "measured"
    assert wrong_values(found, model, np.ones((1, 8, 8))) < 1e-9


def test_automatic_regions_have_the_score():
    """A square of 4 x 4 pixels that has the score only as a whole."""
    square = {row * 16 + column for row in range(4, 8) for column in range(8, 12)}
    found = explain(np.ones((1, 16, 16)), partition=Bisection("auto"), model=any_of_sets([square]))
    assert found.leaves == (Box((4, 8), (8, 12)),)
    assert not found.certificate.reason
    with_games = explain(
        np.ones((1, 16, 16)), DepthFirst(), Bisection("auto"), any_of_sets([square])
    )
    assert with_games.leaves == found.leaves


# Budgets.


@SMALL
@given(
    most=st.integers(4, 90), points=st.sets(st.integers(0, 255), max_size=9), graded=st.booleans()
)
def test_a_budget_is_never_exceeded(most, points, graded):
    model = (lambda batch: batch.mean(axis=(1, 2, 3))) if graded else any_marked
    image = marked((16, 16), points)
    found = explain(image, GroupTesting(max_evaluations=most), model=model)
    assert found.evaluations <= most
    full = explain(image, model=model)
    if full.evaluations <= most:
        assert found.complete
        assert set(found.leaves) == set(full.leaves)
    elif found.complete:
        assert "budget" in found.certificate.reason
    missed = image.copy()
    for leaf in found.leaves:
        missed[(slice(None), *leaf.index)] = 0.0
    assert found.certificate.left == pytest.approx(float(np.ravel(model(missed[None]))[0]))


def test_the_first_questions_need_a_budget():
    with pytest.raises(ArgumentError, match="max_evaluations=3 is less than the 4"):
        explain(marked((8, 8), [1]), GroupTesting(max_evaluations=3))
    found = explain(marked((8, 8), [1]), GroupTesting(max_seconds=0.0))
    assert found.evaluations <= 4
    assert not found.complete


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"tolerance": -1.0}, "tolerance"),
        ({"share": 1.5}, "share"),
        ({"width": 0}, "width"),
        ({"tolerence": 0.1}, "did you mean tolerance"),
    ],
)
def test_wrong_options_are_told(options, told):
    with pytest.raises(hshap.HshapError, match=told):
        GroupTesting(**options)


def test_a_share_is_a_tolerance():
    found = explain(
        4 * marked((8, 8), [9]), GroupTesting(share=0.25), model=lambda b: b.max((1, 2, 3))
    )
    assert found.settings.search == GroupTesting(tolerance=1.0)


# The explanation.


@pytest.mark.parametrize("graded", [False, True])
def test_a_file_keeps_everything(tmp_path, graded):
    model = (lambda batch: batch.mean(axis=(1, 2, 3))) if graded else any_marked
    found = explain(marked((16, 16), [3, 77, 200]), model=model)
    found.save(tmp_path / "a.npz")
    again = Explanation.load(tmp_path / "a.npz")
    assert again.certificate == found.certificate
    assert [game.inferred for game in again.games] == [game.inferred for game in found.games]
    assert repr(again) == repr(found)
    assert again.audit == found.audit


@SMALL
@given(points=st.sets(st.integers(0, 255), min_size=1, max_size=8), size=st.integers(2, 15))
def test_a_coarser_reading_is_a_new_run(points, size):
    found, partition = explain(marked((16, 16), points)), Bisection(size)
    again, new = found.at(min_size=size), explain(marked((16, 16), points), partition=partition)
    assert set(again.leaves) == set(new.leaves)
    assert again.evaluations == found.evaluations
    assert not again.certificate.reason
    assert again.certificate.inferred == sum(game.inferred for game in again.games)
    if again.certificate.inferred and again.how_sure.word == "supported":
        assert "inferred, not measured" in again.how_sure.reason


def test_a_stricter_reading_is_not_certified():
    weights = np.zeros((8, 8))
    weights[0, 0], weights[5, 6], weights[7, 1] = 3.0, 2.0, 1.0
    model = lambda batch: (batch[:, 0] * weights).max(axis=(1, 2))
    found = explain(np.ones((1, 8, 8)), model=model)
    assert set(found.at().leaves) == set(found.leaves)
    strict = found.at(tolerance=1.5)
    assert set(strict.leaves) == {Box((0, 0), (1, 1)), Box((5, 6), (6, 7))}
    assert "leaves out findings" in strict.certificate.reason
    with pytest.raises(ArgumentError, match="percentile=50 does not apply"):
        found.at(percentile=50)


@pytest.mark.parametrize(
    "change",
    [
        {"certificate": None},
        {"certificate": {"inferred": 3}},
        {"inferred": [99]},
        {"inferred": "all"},
    ],
)
def test_other_certificates_are_refused(tmp_path, change):
    from hshap.explanation import storage
    from hshap.explanation.archive import DamagedError

    header, arrays = storage.pack(explain(marked((8, 8), [3])))
    with pytest.raises(DamagedError):
        storage.unpack({**header, **change}, arrays, 2**30)


def test_questions_share_batches():
    """Of several images, and of several groups of one image with many findings."""
    sizes = []

    def model(batch):
        sizes.append(len(batch))
        return any_marked(batch)

    rng = np.random.default_rng(0)
    images = [marked((32, 32), rng.choice(1024, 5, replace=False).tolist()) for _ in range(8)]
    evaluator = hshap.Batched(model, batch_size=8, check_batches=False)
    explainer = Explainer(evaluator, Constant(0.0), Bisection(1), GroupTesting())
    found = list(explainer.explain_many((image, 0) for image in images))
    assert sum(one.evaluations for one in found) == sum(sizes)
    assert np.mean(sizes) > 4  # of 8
    sizes.clear()
    points = rng.choice(4096, 40, replace=False).tolist()
    explain(marked((64, 64), points), model=hshap.Batched(model, check_batches=False))
    assert np.mean(sizes) > 3


def test_a_search_may_ask_for_games_and_questions():
    def own(root, draws):
        (game,) = yield [root]
        (score,) = yield [Question(game.children[:2])]
        assert score.shape == (draws,)
        return SearchResult(game.children[:2] if score[0] > 0 else ())

    found = explain(marked((8, 8), [0]), own, Dyadic(1))
    assert len(found.leaves) == 2
    assert found.evaluations == 16  # the question is a coalition of the game


def test_tiles_name_inferred_games():
    image = np.zeros((1, 128, 128), np.float32)
    image[0, [3, 40, 77, 90, 120], [5, 100, 20, 66, 121]] = 1.0
    explainer = hshap.Explainer(
        lambda tiles: tiles.max(axis=(1, 2, 3)),
        hshap.Constant(0.0),
        hshap.Bisection(1),
        GroupTesting(max_evaluations=40),
    )
    found = hshap.large.explain_tiles(explainer, image, 0, tiles=hshap.large.Tiles(8))
    assert not found.tiles.unfinished
    assert len(found.inside) == 5
    inferred = sum(one.certificate.inferred for one in (found.tiles, *found.inside))
    assert inferred > 0
    assert found.how_sure.word == "supported"
    assert f"but {inferred} games are inferred, not measured" in found.how_sure.reason
