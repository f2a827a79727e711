"""The benchmark's figures: drawn from results alone, and told plainly when those are missing."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("skimage")
pytest.importorskip("rich")
pytest.importorskip("matplotlib")

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb as shares
from matplotlib.text import Text
from PIL import Image

from benchmarks.core import folders, results
from benchmarks.core.protocol import Example
from benchmarks.reporting import figures
from benchmarks.reporting.figures import (
    ablation_curves,
    ablation_examples,
    choice,
    data,
    degradation,
    demos,
    expected_visits,
    f1_runtime,
    glance,
    labels,
    maps,
    multi_label,
    quality_evaluations,
    scatter,
    style,
)
from benchmarks.speed import plots
from hshap.games.theory import expected_visited

COMMITTED = results.RESULTS
SPEED = COMMITTED.parent / "speed" / "speed.json"
SHOWN = 7.0  # inches that a page gives a figure
READABLE = 7.0  # points, at that width
METHODS = (
    "h-shap quadtree tau=0",
    "h-shap bisection",
    "Grad-CAM",
    "PartitionExplainer 64",
    "PartitionExplainer 16",
    "random",
)


@pytest.fixture(autouse=True)
def empty(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(folders, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(results, "DRAWS", 20)


def _row(image, method, place, **more):
    scores = dict.fromkeys(results.QUALITY, 0.1 + 0.1 * place)
    control = method == "random"
    cost = {"evaluations": 0 if control else 10 * 2**place, "seconds": 0.1 * (place + 1)}
    cost |= {"seconds_in_model": 0.05, "megabytes": None}
    objects = {"objects": 2, "objects_found": 1, "false_positives": 0}
    boxes = {"findings": [[0, 0, 2, 2, 0.5]], "boxes": [[0, 0, 2, 2], [4, 4, 9, 9]]}
    curves = {"ablation_counts": [0, 1, 10, 100], "ablation": [2.0, 1.5, 0.5, -0.2]}
    curves["f1_at_shares"] = [scores["f1"]] * 21
    origin = {"split": "test", "commit": "abc", "date": "2026-01-01"}
    named = {"image": image, "method": method}
    return named | scores | cost | objects | boxes | curves | origin | more


def _results(task, groups):
    made = [
        _row(f"{group}-{index}", method, place, group=group)
        for group in groups
        for index in range(2)
        for place, method in enumerate(METHODS)
    ]
    results.write(results.collate(task, made))


@pytest.fixture
def summaries():
    _results("synthetic", ("1 cross", "6 crosses"))
    _results("malaria", ("ring, trophozoite", "trophozoite"))


@pytest.fixture
def sanity():
    similarity = {m: {"spearman": [[0.9, 0.8, 1.0], [-0.1, -0.2, 0.0]]} for m in METHODS}
    summary = {"images": 2, "steps": ["fc_3", "conv_1"], "similarity": similarity}
    folder = results.folder("sanity")
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps(summary))


def _example(name="a", shape=(3, 20, 30)):
    rng = np.random.default_rng(0)
    boxes = {"thing": (((2, 3), (8, 9)),), "ring": (), "trophozoite": (((2, 3), (8, 9)),)}
    return Example(name, rng.random(shape, dtype=np.float32), boxes, {}, group="g", shown=True)


def _assert_drawn(name):
    path = data.figure_file(f"{name}.png")
    figures.draw([name])
    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    assert len(np.unique(pixels)) > 20, "blank"
    assert path.stat().st_size <= style.LARGEST
    return pixels


class TestFromSummaries:
    def test_groups_whose_times_were_not_measured_have_no_panel_of_times(self, summaries):
        timed = len(f1_runtime.draw().axes)
        every = len(quality_evaluations.draw().axes)
        made = [
            _row(f"a-{index}", method, place, group="", seconds=None)
            for index in range(2)
            for place, method in enumerate(METHODS)
        ]
        results.write(results.collate("boards", made))
        assert len(f1_runtime.draw().axes) == timed
        assert len(quality_evaluations.draw().axes) > every

    @pytest.mark.parametrize(
        "name", ["glance", "f1_runtime", "quality_evaluations", "ablation_curves", "partition"]
    )
    def test_each_is_drawn_with_our_method_in_its_colour(self, summaries, name):
        pixels = _assert_drawn(name)
        assert (
            (pixels == [round(255 * share) for share in shares(style.COLOURS[style.OURS])])
            .all(axis=2)
            .any()
        )

    def test_cascade_is_drawn(self, sanity):
        _assert_drawn("cascade")

    def test_panels_that_lack_results_are_told(self, summaries, capsys):
        titles = [panel.title for panel in data.panels()]
        assert titles == [
            "synthetic, 1 cross (2 images)",
            "synthetic, 6 crosses (2 images)",
            "malaria (4 images)",
        ]
        assert "`benchmarks/run boards`" in capsys.readouterr().out

    def test_groups_of_photographs_are_pooled_over_images(self, summaries):
        panel = data.panels(("malaria",))[0]
        assert panel.entries["h-shap bisection"]["images"] == 4
        assert panel.entries["h-shap bisection"]["f1"][0] == pytest.approx(0.2)
        assert panel.curves["random"]["mean"] == pytest.approx([2.0, 1.5, 0.5, -0.2])


class TestWhatIsMissing:
    def test_an_unknown_name_is_answered_by_those_there_are(self):
        with pytest.raises(ValueError, match=r"no figure is called 'nope'; there are glance, .*"):
            figures.draw(["nope"])

    @pytest.mark.parametrize("name", list(figures.FIGURES))
    def test_a_figure_without_results_names_the_command(self, name, capsys):
        figures.draw([name])
        told = capsys.readouterr().out
        assert told.startswith(f"{name} is skipped: ")
        assert "`benchmarks/run " in told
        assert not data.figure_file(f"{name}.png").exists()

    @pytest.mark.parametrize("name", ["demos_malaria", "randomisation"])
    def test_maps_that_no_run_kept_are_told(self, name, capsys):
        figures.compute([name])
        assert "the cache holds no maps" in capsys.readouterr().out

    def test_missing_photographs_are_told(self, monkeypatch, capsys):
        def lost():
            raise folders.MissingDataError("no 'images' in data")

        monkeypatch.setitem(figures.FIGURES, "multi_label", figures.Drawing(lost))
        figures.draw(["multi_label"])
        assert capsys.readouterr().out == "multi_label is skipped: no 'images' in data.\n"


class TestMaps:
    @pytest.fixture
    def kept(self):
        heat = np.arange(-60, 540).reshape(20, 30) % 100
        for method in METHODS:
            path = folders.cache("runs", "tiny", "maps", "a", f"{method}.npz")
            np.savez_compressed(path, heat=heat.astype(np.int8))
        return heat.astype(np.int8)

    def test_the_maps_of_a_run_are_gathered(self, kept):
        maps.collect("tiny")
        found = maps.read("tiny", "tiny")
        assert list(found["a"]) == list(METHODS)
        np.testing.assert_array_equal(found["a"]["random"], kept)

    def test_a_large_file_keeps_the_first_image(self, kept, monkeypatch):
        np.savez_compressed(folders.cache("runs", "tiny", "maps", "b", "random.npz"), heat=kept)
        monkeypatch.setattr(maps, "LARGEST", 0)
        maps.collect("tiny")
        assert list(maps.read("tiny", "tiny")) == ["a"]

    def test_demos_are_drawn(self, kept, monkeypatch):
        maps.collect("tiny")
        results.write(results.collate("tiny", [_row("a", "random", 1, group="g")]))
        task = SimpleNamespace(concept="thing", positives=lambda split, quick: [_example()])
        monkeypatch.setitem(demos.ALL, "tiny", lambda: task)
        drawing = figures.Drawing(lambda: demos.draw("tiny"))
        monkeypatch.setitem(figures.FIGURES, "demos_tiny", drawing)
        _assert_drawn("demos_tiny")

    def test_randomised_maps_are_gathered_and_drawn(self, summaries):
        steps = np.random.default_rng(0).normal(size=(6, 20, 30)).astype(np.float32)
        for method in METHODS:
            path = folders.cache("sanity", f"{method.replace(' ', '_')}-0.npz")
            np.savez_compressed(path, maps=steps, image=_example().image)
        figures.compute(["randomisation"])
        found = maps.read("sanity", "sanity")
        assert list(found["random"]) == list(METHODS)
        np.testing.assert_array_equal(found["random"]["random"], data.as_bytes(steps[-1]))
        _assert_drawn("randomisation")


class TestOwnData:
    def test_simulated_visits_agree_with_the_formula(self):
        rng = np.random.default_rng(0)
        drawn = [expected_visits._visited(rng, 256, 1, 0.05) for _ in range(2000)]
        error = np.std(drawn) / np.sqrt(len(drawn))
        assert np.mean(drawn) == pytest.approx(expected_visited(256, 4, 0.05), abs=4 * error)

    def test_expected_visits(self, monkeypatch):
        monkeypatch.setattr(expected_visits, "SIDES", (64,))
        monkeypatch.setattr(expected_visits, "TRIALS", 3)
        figures.compute(["expected_visits"])
        stored = json.loads(data.figure_file("expected_visits.json").read_text())
        assert {"seed", "commit", "date", "versions"} <= stored.keys()
        _assert_drawn("expected_visits")

    def test_ablation_examples(self, summaries):
        masks = {m: np.packbits(np.arange(12000) % 7 == 0) for m in METHODS}
        logits = dict.fromkeys(("", *METHODS), 1.0)
        path = data.figure_file("ablation_examples.npz")
        data.write_arrays(path, masks, 0, logits=logits)
        assert ablation_examples._example().group == "6 crosses"
        _assert_drawn("ablation_examples")

    def test_degradation(self):
        found = SimpleNamespace(
            coefficients=lambda: np.eye(300, 400), evaluations=7, complete=False
        )
        example = _example(shape=(3, 300, 400))
        degradation._keep(example, "thing", dict.fromkeys(degradation.SIZES, found))
        stored, about = data.read_arrays(data.figure_file("degradation.npz"), "")
        assert {array.shape[:2] for array in stored.values()} == {(200, 200)}
        assert about["box"] == [[2, 3], [8, 9]]
        _assert_drawn("degradation")

    def test_multi_label(self):
        keys = [f"{one}|{other}" for one in multi_label.CONCEPTS for other in multi_label.CONCEPTS]
        heats = {key: np.eye(20, 30, dtype=np.int8) for key in keys}
        data.write_arrays(data.figure_file("multi_label.npz"), heats, 0)
        examples = dict.fromkeys(multi_label.CONCEPTS, _example())
        titles = [axes.get_title() for axes in multi_label.drawn(examples).axes]
        assert titles.count("map for ring") == titles.count("map for trophozoite") == 2


@pytest.fixture
def committed(monkeypatch):
    monkeypatch.setattr(results, "RESULTS", COMMITTED)
    with mpl.rc_context(style.SETTINGS):
        yield


def _drawn(name):
    """Return a figure of the committed results, drawn: only then is all its text placed."""
    if name == "speed":
        figure = plots.figure(json.loads(SPEED.read_text())["measured"])
    else:
        try:
            figure = figures.FIGURES[name].draw()
        except folders.MissingDataError as reason:
            pytest.skip(str(reason))
    figure.canvas.draw()
    return figure


def _texts(figure):
    """Return the texts that are drawn: an axis also holds ticks beyond its limits."""
    every = figure.findobj(lambda artist: isinstance(artist, Text) and artist.get_visible())
    hidden = {text for axes in figure.findobj(Axes) for text in _hidden(axes)}
    return [text for text in every if text.get_text().strip() and text not in hidden]


def _hidden(axes):
    hidden = set(axes.xaxis.findobj(Text)) | set(axes.yaxis.findobj(Text))
    if not axes.axison:
        return hidden
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        shown = [t for t in axis.get_major_ticks() if low <= t.get_loc() <= high]
        hidden -= {axis.label, axis.offsetText, *(tick.label1 for tick in shown)}
    return hidden


def _outside(figure):
    width, height = figure.canvas.get_width_height()
    boxes = [(text.get_text(), labels.extent(text)) for text in _texts(figure)]
    return [
        name for name, box in boxes if box.x0 < 0 or box.y0 < 0 or box.x1 > width or box.y1 > height
    ]


def _overlaps(figure):
    boxes = [
        (text.get_text(), labels.extent(text))
        for text in _texts(figure)
        if text.get_gid() == labels.GID
    ]
    return [
        (one, other)
        for place, (one, first) in enumerate(boxes)
        for other, second in boxes[:place]
        if first.overlaps(second)
    ]


FROM_COMMITTED = (
    "glance",
    "f1_runtime",
    "quality_evaluations",
    "ablation_curves",
    "partition",
    "expected_visits",
    "cascade",
    "degradation",
    "ablation_examples",
    "randomisation",
    "demos_synthetic",
    "gallery",
    "gallery_more",
    "first",
    "speed",
    # Photographs are not committed: without them these are skipped.
    "demos_malaria",
    "demos_boards",
    "multi_label",
    "partitions",
)


class TestReadable:
    @pytest.mark.parametrize("name", FROM_COMMITTED)
    def test_text_is_inside_large_enough_and_labels_do_not_overlap(self, committed, name):
        figure = _drawn(name)
        sizes = {text.get_text(): text.get_fontsize() for text in _texts(figure)}
        shrunk = min(1.0, SHOWN / figure.get_figwidth())
        assert sizes, "no text"
        assert {text: size for text, size in sizes.items() if size * shrunk < READABLE} == {}
        assert _outside(figure) == []
        assert _overlaps(figure) == []

    def test_text_outside_and_overlaps_are_noticed(self):
        figure = style.canvas(2, 2)
        for place in ((0.95, 0.5), (0.9, 0.5)):
            figure.text(*place, "too far right", gid=labels.GID)
        figure.canvas.draw()
        assert _outside(figure) == ["too far right"] * 2
        assert len(_overlaps(figure)) == 1

    @pytest.mark.parametrize("path", sorted(COMMITTED.glob("figures/*.png")), ids=lambda p: p.stem)
    def test_committed_pictures_are_small(self, path):
        assert path.stat().st_size < 400_000
        with Image.open(path) as picture:
            assert picture.width <= style.WIDTH * style.DPI


SCORES = {
    "h-shap quadtree tau=0": 0.1,
    "h-shap quadtree shared": 0.3,
    "h-shap bisection": 0.2,
    "LIME": 0.5,
    "LIME baseline": 0.9,
    "Grad-CAM": 0.4,
}


class TestChoice:
    def test_a_kind_is_shown_by_its_best_setting(self):
        best = ["LIME baseline", "Grad-CAM", "h-shap quadtree shared", "h-shap bisection"]
        assert choice.leaders(SCORES) == best

    def test_the_papers_own_method_is_always_shown(self):
        entries = {name: {"f1_validated": [score] * 3} for name, score in SCORES.items()}
        assert choice.best_settings(entries)[-1] == choice.PAPER
        named = choice.named(SCORES, ours=1, others=1)
        assert named == ["h-shap quadtree shared", choice.PAPER, "LIME baseline"]

    def test_a_method_that_evaluates_the_model_is_no_level(self, committed):
        boards = data.panels(("boards",))[0].entries
        assert not choice.is_blind(boards["spots alone smoothed"])
        assert "spots alone smoothed" in scatter.chosen(boards, "average_precision")
        assert choice.is_blind(boards["difference"])

    def test_the_glance_is_short(self, committed):
        for panel in data.panels():
            assert len(choice.best_settings(panel.entries)) <= 15
        figure = glance.draw()
        assert all(len(axes.get_yticklabels()) <= 15 for axes in figure.axes)

    def test_few_curves_are_in_colour_and_each_in_a_look_of_its_own(self, committed):
        for axes in ablation_curves.draw().axes:
            named = [line for line in axes.get_lines() if line.get_gid() == "named"]
            assert 3 <= len(named) <= 5
            looks = {(line.get_color(), line.get_linestyle()) for line in named}
            assert len(looks) == len(named)

    def test_few_points_are_named(self, committed):
        for panel in data.panels():
            assert 3 <= len(scatter.chosen(panel.entries, "f1")) <= 5


class TestLabels:
    def test_labels_of_equal_points_do_not_overlap(self):
        figure = style.canvas(4, 3)
        axes = figure.subplots()
        axes.set(xlim=(0, 1), ylim=(0, 1))
        labels.settle(figure)
        spots = np.array([[0.5, 0.5]])
        wanted = [labels.Label(f"method {i}", spots, "black") for i in range(6)]
        labels.place(axes, wanted, [(spots, labels.POINT)])
        figure.canvas.draw()
        assert _overlaps(figure) == []
        marker = axes.transData.transform(spots)[0]
        texts = [text for text in _texts(figure) if text.get_gid() == labels.GID]
        assert len(texts) == 6
        assert not any(labels.extent(text).contains(*marker) for text in texts)


class TestStyle:
    def test_only_ours_has_its_colour(self):
        ours = {name for name in style.ORDER if style.role(name) == style.COLOURS[style.OURS]}
        assert ours == {name for name in style.ORDER if style.FAMILIES[name] == style.OURS}

    def test_families_differ_in_colour(self):
        assert len(set(style.COLOURS.values())) == len(style.COLOURS)
        assert set(style.FAMILIES.values()) <= style.COLOURS.keys()

    def test_the_strongest_of_a_block_is_shown_whatever_its_sign(self):
        values = np.zeros((5, 4))
        values[1, 1], values[0, 0], values[4, 3] = -3, 2, 1
        np.testing.assert_array_equal(style.strongest(values, 2), [[-3, 0], [0, 0], [0, 1]])

    def test_large_pictures_are_saved_with_fewer_colours(self, tmp_path, monkeypatch):
        monkeypatch.setattr(style, "LARGEST", 0)
        figure = style.canvas(2, 2)
        style.heat(figure.subplots(), np.random.default_rng(0).normal(size=(50, 50)))
        style.save(figure, tmp_path / "few.png")
        with Image.open(tmp_path / "few.png") as picture:
            assert picture.mode == "P"
