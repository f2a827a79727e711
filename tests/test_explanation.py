from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest
from colours import count_colours
from hypothesis import given
from hypothesis import strategies as st
from oracle import any_marked, marked, same_explanation

import hshap
from hshap import (
    Bisection,
    BreadthFirst,
    Constant,
    DepthFirst,
    Dyadic,
    Explainer,
    Explanation,
    References,
    Shifted,
    cycle_spin,
)
from hshap.errors import ArgumentError, FormatError


def smooth(batch):
    """Score something with many small coefficients of both signs."""
    flat = batch.reshape(len(batch), -1)
    return np.tanh(flat).max(1) + 0.3 * np.sin(7 * flat).mean(1)


def explain(image, partition=None, search=None, model=smooth, baseline=None, *, layout=None):
    explainer = Explainer(
        model,
        baseline=baseline or Constant(0.0),
        partition=partition or Dyadic(1),
        search=search or DepthFirst(),
    )
    return explainer.explain(image, target=0, layout=layout)


def test_saliency_sums_to_one_and_is_even_over_relevant_pixels(rng):
    found = explain(rng.random((2, 9, 14)))
    heat = found.saliency()
    assert heat.shape == (9, 14)
    assert np.isclose(heat.sum(), 1.0)
    assert len(np.unique(heat[heat > 0])) == 1
    assert (heat > 0).sum() == sum(leaf.area for leaf in found.leaves)


def test_nothing_relevant_is_an_empty_explanation_with_zero_maps():
    found = explain(marked((8, 8), []), model=any_marked)
    assert found.leaves == ()
    for heat in (found.saliency(), found.coefficients(), found.attribution(), found.errors()):
        assert heat.shape == (8, 8)
        assert not heat.any()
    assert found.boxes() == []
    assert found.complete
    assert "nothing relevant" in repr(found)
    assert found.at(min_size=4).leaves == ()


def test_coefficients_show_each_leaf_s_own_coefficient(rng):
    found = explain(rng.random((1, 8, 8)), Dyadic(2))
    heat = found.coefficients()
    own = {
        part: phi
        for game in found.games
        for part, phi in zip(game.children, game.coefficients, strict=True)
    }
    for leaf in found.leaves:
        assert (heat[leaf.index] == own[leaf]).all()


@given(st.integers(0, 2**31), st.sampled_from([Dyadic, Bisection]))
def test_attribution_and_residual_add_up(seed, partition):
    found = explain(np.random.default_rng(seed).random((1, 6, 7)), partition(2))
    assert np.isclose(
        found.attribution().sum() + found.residual, found.score - found.baseline_score
    )


def test_attribution_is_exact_where_nothing_is_dropped():
    weights = np.arange(1.0, 17.0).reshape(4, 4)
    image = np.ones((1, 4, 4))
    found = explain(image, model=lambda b: (b[:, 0] * weights).sum(axis=(1, 2)))
    np.testing.assert_allclose(found.attribution(), weights)
    assert abs(found.residual) < 1e-9


def test_what_is_relevant_is_never_attributed_against():
    image = np.array([[3.0, 0.0, -4.0, 0.0]])
    found = explain(image, Bisection(1), model=lambda b: b.sum(axis=(1, 2)))
    np.testing.assert_allclose(found.attribution(), [3, 0, 0, 0])
    assert found.residual == -4.0


def test_residual_holds_what_was_dropped():
    image = np.zeros((1, 2, 2))
    image[0] = [[0.5, 0.3], [0.15, 0.05]]
    found = explain(image, search=DepthFirst(0.2), model=lambda b: b.sum(axis=(1, 2, 3)))
    np.testing.assert_allclose(found.attribution(), [[0.5, 0.3], [0, 0]])
    assert np.isclose(found.residual, 0.2)


@given(
    st.integers(0, 2**31),
    st.lists(st.integers(1, 12), min_size=1, max_size=3).map(tuple),
    st.integers(1, 12),
    st.floats(0, 0.1),
    st.booleans(),
)
def test_a_coarser_reading_of_bisection_equals_a_new_run(seed, grid, size, tolerance, keep):
    image = np.random.default_rng(seed).random((1, *grid))
    layout = "C" + "ZYX"[-len(grid) :]  # a thin volume would look like a batch
    fine = explain(image, Bisection(1), DepthFirst(0.0, keep_whole=keep), layout=layout)
    new = explain(image, Bisection(size), DepthFirst(tolerance, keep_whole=keep), layout=layout)
    read = fine.at(min_size=size, tolerance=tolerance)
    assert set(read.leaves) == set(new.leaves)
    assert read.evaluations == new.evaluations
    assert {game.region for game in read.games} == {game.region for game in new.games}
    assert np.array_equal(read.coefficients(), new.coefficients())
    assert read.complete
    assert read.settings == new.settings


@pytest.mark.parametrize("size", [2, 4, 8, 16, 100])
@pytest.mark.parametrize("search", [DepthFirst(0.001), BreadthFirst(40)])
def test_a_coarser_reading_of_dyadic_equals_a_new_run_on_even_grids(size, search, rng):
    image = rng.random((1, 16, 16))
    read = explain(image, Dyadic(1), search).at(min_size=size)
    new = explain(image, Dyadic(size), search)
    assert set(read.leaves) == set(new.leaves)
    assert read.evaluations == new.evaluations
    assert np.array_equal(read.attribution(), new.attribution())


def test_a_reading_can_be_read_again(rng):
    fine = explain(rng.random((1, 16, 16)))
    once = fine.at(min_size=4, tolerance=0.001)
    twice = fine.at(min_size=2).at(min_size=4).at(tolerance=0.001)
    assert same_explanation(once, twice)


def test_a_shifted_run_can_be_read_more_coarsely(rng):
    image = rng.random((1, 8, 8))
    read = explain(image, Shifted(Dyadic(1), (3, 5))).at(min_size=4)
    new = explain(image, Shifted(Dyadic(4), (3, 5)))
    assert set(read.leaves) == set(new.leaves)
    assert read.settings["partition"] == new.settings["partition"]


def test_reading_what_a_budget_cut_off_stays_incomplete(rng):
    image = rng.random((1, 16, 16))
    cut = explain(image, search=DepthFirst(max_evaluations=100))
    assert not cut.at(tolerance=0.0).complete
    assert set(cut.at(tolerance=0.0).leaves) == set(cut.leaves)
    assert cut.at(min_size=16).complete


def test_a_reading_spends_no_budget(rng):
    image = rng.random((1, 16, 16))
    cut = explain(image, search=DepthFirst(max_evaluations=200, max_seconds=60.0))
    again = cut.at(tolerance=0.0)
    assert set(again.leaves) == set(cut.leaves)
    assert again.settings["search"]["max_evaluations"] is None
    assert again.settings["search"]["max_seconds"] is None


def test_a_percentile_over_fewer_games_that_keeps_more_says_it_is_incomplete():
    # Uneven sides: at min_size 2, some of a level are leaves and others go on.
    rng = np.random.default_rng(3)
    for _ in range(30):
        fine = explain(rng.random((1, 7, 10)), Bisection(1), BreadthFirst(60))
        read = fine.at(min_size=2)
        seen = {part for game in fine.games for part in game.children}
        assert set(read.leaves) <= seen | {fine.games[0].region}
        for leaf in read.unfinished:
            assert leaf not in {game.region for game in fine.games}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_size": 1}, "min_size=1 is finer than the 2 of this run"),
        ({"min_size": (4, 4, 4)}, "3 entries, but the image has 2 spatial axes"),
        ({"tolerance": 0.0}, r"tolerance=0.0 is below the 0.01 of this run"),
        ({"tolerance": -1}, "tolerance must be a finite number"),
        ({"percentile": 50}, "percentile=50 does not apply: this run used DepthFirst"),
    ],
)
def test_a_reading_that_the_run_cannot_give_is_refused(options, message, rng):
    found = explain(rng.random((1, 8, 8)), Dyadic(2), DepthFirst(0.01))
    with pytest.raises(ArgumentError, match=message):
        found.at(**options)


def test_a_search_of_one_s_own_cannot_be_read_again(rng):
    def own(root, draws):
        return (yield from DepthFirst()(root, draws))

    found = explain(rng.random((1, 8, 8)), search=own)
    with pytest.raises(
        ArgumentError, match="explain with one of DepthFirst, BreadthFirst, GroupTesting"
    ):
        found.at(min_size=4)


def test_boxes_of_single_leaves():
    found = explain(marked((8, 8), [9, 10, 63]), model=any_marked)
    boxes = found.boxes(merge=False)
    assert {(start, stop) for start, stop, _ in boxes} == {
        ((1, 1), (2, 2)),
        ((1, 2), (2, 3)),
        ((7, 7), (8, 8)),
    }
    assert [box.score for box in boxes] == sorted((box.score for box in boxes), reverse=True)


def test_boxes_merge_what_touches():
    found = explain(marked((8, 8), [9, 10, 17, 63]), model=any_marked)
    assert {(box.start, box.stop) for box in found.boxes(merge=True)} == {
        ((1, 1), (3, 3)),
        ((7, 7), (8, 8)),
    }


@given(st.sets(st.integers(0, 71), max_size=20))
def test_merged_boxes_agree_with_scipy(points):
    ndimage = pytest.importorskip("scipy.ndimage")
    image = marked((8, 9), points)
    found = explain(image, model=any_marked)
    labels, _ = ndimage.label(image[0])
    theirs = {
        (tuple(s.start for s in box), tuple(s.stop for s in box))
        for box in ndimage.find_objects(labels)
    }
    assert {(box.start, box.stop) for box in found.boxes()} == theirs


def test_a_leaf_that_wraps_has_a_box_at_each_border():
    image = marked((8, 8), [0])
    found = explain(image, Shifted(Dyadic(4), (2, 2)), model=any_marked)
    boxes = {(box.start, box.stop) for box in found.boxes(merge=True)}
    assert boxes == {
        ((0, 0), (2, 2)),
        ((6, 0), (8, 2)),
        ((0, 6), (2, 8)),
        ((6, 6), (8, 8)),
    }


@pytest.mark.parametrize("grid", [(40,), (12, 17), (6, 7, 8)])
@pytest.mark.parametrize("shift", [None, 3])
def test_what_is_saved_is_loaded(grid, shift, rng, tmp_path):
    partition = Bisection(2) if shift is None else Shifted(Dyadic(2), shift)
    baseline = References(rng.random((3, 2, *grid)))
    found = explain(rng.random((2, *grid)), partition, baseline=baseline)
    found.save(tmp_path / "cell.npz")
    again = Explanation.load(tmp_path / "cell.npz")
    assert same_explanation(found, again)
    assert again.seconds == found.seconds
    assert again.settings == found.settings
    assert np.array_equal(again.attribution(), found.attribution())
    assert same_explanation(again.at(min_size=4), found.at(min_size=4))
    assert repr(again) == repr(found)


def test_regions_of_any_kind_are_saved_as_pixels(tmp_path):
    class Ring(hshap.Region):
        """A region of one's own: the border, or the area inside it."""

        def __init__(self, inside=None):
            self.inside = inside

        @property
        def index(self):
            chosen = np.ones((6, 6), bool)
            if self.inside is not None:
                chosen[1:-1, 1:-1] = False
                chosen = ~chosen if self.inside else chosen
            return np.nonzero(chosen)

        @property
        def area(self):
            return len(self.index[0])

        def split(self):
            return (Ring(inside=False), Ring(inside=True)) if self.inside is None else ()

    found = explain(marked((6, 6), [14]), lambda image: Ring(), model=any_marked)
    assert [leaf.inside for leaf in found.leaves] == [True]
    found.save(tmp_path / "ring.npz")
    again = Explanation.load(tmp_path / "ring.npz")
    assert np.array_equal(again.saliency(), found.saliency())
    assert again.boxes() == found.boxes()
    again.save(tmp_path / "again.npz")
    assert same_explanation(again, Explanation.load(tmp_path / "again.npz"))


def test_a_saved_file_holds_no_pickle(tmp_path):
    explain(marked((4, 4), [3])).save(tmp_path / "x.npz")
    with np.load(tmp_path / "x.npz", allow_pickle=False) as archive:
        assert all(archive[name].dtype != object for name in archive.files)


def test_saving_never_leaves_half_a_file(tmp_path, monkeypatch):
    found = explain(marked((4, 4), [3]))
    found.save(tmp_path / "x.npz")
    before = (tmp_path / "x.npz").read_bytes()

    def fail(*args, **kwargs):
        raise OSError(28, "no space left")

    monkeypatch.setattr(np, "savez_compressed", fail)
    with pytest.raises(OSError, match="no space"):
        found.save(tmp_path / "x.npz")
    assert (tmp_path / "x.npz").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["x.npz"]


def test_what_is_no_explanation_is_refused(tmp_path):
    path = tmp_path / "x.npz"
    for content in (b"", b"hello", b"PK\x03\x04garbage"):
        path.write_bytes(content)
        with pytest.raises(FormatError, match=r"x\.npz is not an hshap explanation"):
            Explanation.load(path)
    np.savez(path, a=np.zeros(3))
    with pytest.raises(FormatError, match="not an hshap explanation"):
        Explanation.load(path)
    with pytest.raises(FileNotFoundError):
        Explanation.load(tmp_path / "missing.npz")


def test_a_newer_version_and_damage_are_told(tmp_path):
    path = tmp_path / "x.npz"
    explain(marked((4, 4), [3])).save(path)
    with np.load(path) as archive:
        arrays = dict(archive)
    header = arrays["header"].tobytes()
    newer = np.frombuffer(header.replace(b'"version": 3', b'"version": 9'), np.uint8)
    np.savez(path, **{**arrays, "header": newer})
    with pytest.raises(FormatError, match="version 9, written by hshap .*, but this hshap reads version"):
        Explanation.load(path)
    np.savez(path, **{**arrays, "game_values": arrays["game_values"][:-1]})
    with pytest.raises(FormatError, match="damaged"):
        Explanation.load(path)
    np.savez(path, **{**arrays, "region_kind": np.full_like(arrays["region_kind"], 2)})
    with pytest.raises(FormatError, match="damaged"):
        Explanation.load(path)
    with pytest.raises(IsADirectoryError):
        Explanation.load(tmp_path)


@pytest.mark.parametrize(
    ("channels", "grid"),
    [
        (2, (30,)),
        (1, (9, 14)),
        (3, (9, 14)),
        (4, (9, 14)),
        (5, (5, 6, 7)),
        (1, (1, 90)),
        (1, (90, 1)),
    ],
)
@pytest.mark.parametrize("empty", [True, False])
def test_a_plot_is_never_blank(grid, empty, channels, rng, tmp_path):
    pytest.importorskip("matplotlib")
    image = np.zeros((channels, *grid)) if empty else 3 * rng.random((channels, *grid)) - 1
    found = explain(image, Bisection(1), model=any_marked)
    for number, shown in enumerate((image, None)):
        figure = found.plot(shown)
        figure.savefig(tmp_path / f"{number}.png")
        figure.canvas.draw()
        pixels = np.asarray(figure.canvas.buffer_rgba())[..., :3]
        assert count_colours(pixels) > 20
        assert (tmp_path / f"{number}.png").stat().st_size > 3000


def test_a_plot_shows_where_the_map_is(tmp_path):
    pytest.importorskip("matplotlib")
    image = marked((20, 20), [0])
    found = explain(image, Dyadic(10), model=any_marked)
    figure = found.plot(np.full((1, 20, 20), 0.5))
    figure.canvas.draw()
    pixels = np.asarray(figure.canvas.buffer_rgba())[..., :3].astype(int)
    (x0, y0), (x1, y1) = figure.axes[0].transData.transform([(2, 17), (17, 2)])
    height = pixels.shape[0]
    inside, outside = pixels[height - int(y1), int(x0)], pixels[height - int(y0), int(x1)]
    assert inside[0] > inside[2] + 30
    assert abs(outside[0] - outside[2]) < 5
    assert figure.axes[1].get_ylabel() == "score per pixel, 1 in total"


def test_outlines_run_between_the_pixels_of_different_regions():
    pytest.importorskip("matplotlib")
    found = explain(marked((8, 8), [9]), model=any_marked)
    visited, leaf = found.plot(outlines=True).axes[0].collections
    around = {frozenset({(0.5, y), (1.5, y)}) for y in (0.5, 1.5)}
    around |= {frozenset({(x, 0.5), (x, 1.5)}) for x in (0.5, 1.5)}
    assert {frozenset(map(tuple, line.tolist())) for line in leaf.get_segments()} == around
    assert [[-0.5, 3.5], [7.5, 3.5]] in [line.tolist() for line in visited.get_segments()]


def test_a_plot_takes_another_map_and_refuses_another_shape(rng):
    pytest.importorskip("matplotlib")
    image = rng.random((1, 8, 8))
    found = explain(image)
    found.plot(image, heat=found.saliency(), title="saliency")
    with pytest.raises(ArgumentError, match=r"heat has shape \(3, 3\)"):
        found.plot(image, heat=np.zeros((3, 3)))
    with pytest.raises(ArgumentError, match=r"image has shape \(1, 4, 4\), but the map has"):
        found.plot(image[:, :4, :4])


def test_the_repr_says_what_was_found_and_what_it_cost():
    found = explain(marked((8, 8), [9]), model=any_marked)
    assert re.fullmatch(
        r"<Explanation: target 0, 1 leaf on 1\.56% of 8 x 8, 3 games, 44 evaluations, .* s, "
        r"OR gap 0\.00; 44 inputs in full; batches: independent>",
        repr(found),
    )


@pytest.mark.parametrize("grid", [(30,), (9, 14), (5, 6, 7), (700, 900)])
def test_the_html_repr_shows_the_map(grid):
    pillow = pytest.importorskip("PIL.Image")
    found = explain(marked(grid, [5]), Bisection(1), model=any_marked)
    html = found._repr_html_()
    (data,) = re.findall(r"data:image/png;base64,([^\"]+)", html)
    raw = base64.b64decode(data)
    assert raw.startswith(b"\x89PNG")
    pixels = np.asarray(pillow.open(io.BytesIO(raw))).astype(int)
    # The single relevant pixel is red, however small it is in the image.
    assert (pixels[..., 0] > pixels[..., 2] + 100).any()


def test_html_repr_is_read_by_another_library(tmp_path):
    image = pytest.importorskip("matplotlib.image")
    from hshap._util.raster import png

    pixels = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    (tmp_path / "x.png").write_bytes(png(pixels))
    read = image.imread(tmp_path / "x.png")
    assert np.array_equal(np.round(read * 255).astype(np.uint8), pixels)


def test_names_cannot_inject_markup():
    def target(outputs):
        return outputs[:, 0]

    target.__qualname__ = "<script>alert(1)</script>"
    explainer = Explainer(any_marked, baseline=Constant(0.0), partition=Dyadic(1))
    found = explainer.explain(marked((4, 4), [3]), target=target)
    assert "<script>" not in found._repr_html_()


def test_targets_may_be_callables():
    model = lambda batch: np.stack([any_marked(batch), 3 * any_marked(batch)], axis=1)
    margin = lambda outputs: outputs[:, 1] - outputs[:, 0]
    explainer = Explainer(model, baseline=Constant(0.0), partition=Dyadic(1))
    found = explainer.explain(marked((4, 4), [3]), target=margin)
    assert found.score == 2.0
    both = explainer.explain(marked((4, 4), [3]), target=[1, margin])
    assert [one.score for one in both] == [3.0, 2.0]


def test_a_callable_is_applied_to_each_draw_before_the_mean(rng):
    references = rng.random((5, 1, 2, 2))
    model = lambda batch: batch.mean(axis=(1, 2, 3))
    square = lambda outputs: outputs[:, 0] ** 2
    explainer = Explainer(model, baseline=References(references), partition=Dyadic(2))
    found = explainer.explain(np.ones((1, 2, 2)), target=square)
    expected = (references.mean(axis=(1, 2, 3)) ** 2).mean()
    assert np.isclose(found.baseline_score, expected)


def test_no_softmax_is_hidden():
    model = lambda batch: np.stack([any_marked(batch) * 40, any_marked(batch) * -7], axis=1)
    explainer = Explainer(model, baseline=Constant(0.0), partition=Dyadic(1))
    found = explainer.explain(marked((4, 4), [3]), target=[0, 1])
    assert [one.score for one in found] == [40.0, -7.0]


def test_a_spin_plots_and_prints(rng):
    pytest.importorskip("matplotlib")
    image = rng.random((1, 8, 8))
    explainer = Explainer(smooth, baseline=Constant(0.0), partition=Dyadic(2))
    spun = cycle_spin(explainer, image, target=0, shifts=[0, 1])
    assert "Spin of 2 explanations" in repr(spun)
    assert spun.plot(image).axes
    assert spun.attribution().shape == (8, 8)
