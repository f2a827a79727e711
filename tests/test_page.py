"""The page in a real browser: it reads as `Explanation.at` does, and nothing gets in or out."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace

import numpy as np
import pictures
import pytest
from browsers import (
    canvas_pixels,
    drawn,
    expected_leaves,
    explained,
    point_at,
    shown_leaves,
)
from colours import count_colours
from oracle import any_marked, marked
from pages import enlarged, spotted

import hshap
from hshap._util.visible import visible
from hshap.explanation.maps import CONTEXTS
from hshap.export.page import View
from hshap.export.page.tables import tabulate

HOSTILE = (
    "a</script><script>window.pwned=1</script>\"'><img src=x onerror=window.pwned=1>\u2028&amp;"
)


LABELS = np.kron(np.arange(48).reshape(6, 8), np.ones((4, 4), int))[:24, :31]
RUNS = {
    "quadtree": (hshap.Dyadic(1), hshap.DepthFirst()),
    "quadtree, whole": (hshap.Dyadic(2), hshap.DepthFirst(0.01, keep_whole=True)),
    "quadtree, sides of its own": (hshap.Dyadic((2, 4)), hshap.DepthFirst()),
    "bisection, auto": (hshap.Bisection("auto"), hshap.DepthFirst()),
    "bisection, auto, coarse": (hshap.Bisection("auto"), hshap.DepthFirst(0.3)),
    "bisection, auto, budget": (hshap.Bisection("auto"), hshap.DepthFirst(max_evaluations=80)),
    "bisection, auto, percentile": (hshap.Bisection("auto"), hshap.BreadthFirst(50)),
    "shifted": (hshap.Shifted(hshap.Dyadic(3), (5, -7)), hshap.DepthFirst()),
    "budget": (hshap.Bisection(1), hshap.DepthFirst(max_evaluations=60)),
    "one leaf": (hshap.Dyadic(64), hshap.DepthFirst()),  # gone at a high tolerance
    "percentile": (hshap.Bisection(2), hshap.BreadthFirst(60)),
    "percentile, whole": (hshap.Dyadic(2), hshap.BreadthFirst(30, keep_whole=True)),
    "labels": (hshap.Superpixels.from_labels(LABELS), hshap.DepthFirst()),
    "labels in fours": (hshap.Superpixels.from_labels(LABELS, parts=4), hshap.BreadthFirst(40)),
    "labels, auto": (
        hshap.Superpixels.from_labels(LABELS, min_area="auto"),
        hshap.DepthFirst(0.01),
    ),
    "shifted superpixels": (
        hshap.Shifted(hshap.Superpixels(min_area=4, max_area=16), 3),
        hshap.DepthFirst(),
    ),
    "superpixels": (hshap.Superpixels(min_area=4, max_area=16), hshap.DepthFirst()),
    "groups": (hshap.Bisection(1), hshap.GroupTesting(0.02)),
    "groups of labels": (hshap.Superpixels.from_labels(LABELS), hshap.GroupTesting()),
}


@pytest.mark.parametrize("name", RUNS)
def test_sliders_give_exactly_the_leaves_of_at(show, name):
    if "labels" in name or "superpixels" in name:
        pytest.importorskip("higra")
    changes = 0
    for seed in (0, 1):
        image, explanation = explained(seed, *RUNS[name], density=0.01 if "auto" in name else 0.05)
        tab = show([View("x.png", image, {"one": explanation})])
        assert shown_leaves(tab) == expected_leaves(explanation)
        search = explanation.settings["search"]
        by = "tolerance" if "tolerance" in search else "percentile"
        measure, keyword = (
            ("side", "min_size")
            if isinstance(explanation.games[0].region, hshap.Box)
            else ("area", "min_area")
        )
        for level, size in [(1, 0), (0, 2), (250, 0), (500, 1), (120, 3), (0, 99), (1000, 0)]:
            for key, place in ((by, level), (measure, size)):
                slider = tab.locator(f"#slider-{key}")
                most = int(slider.get_attribute("max"))
                slider.fill(str(min(place, most)))
            limits = tab.evaluate("hshap.limits()")
            asked = {by: limits["level"], keyword: limits["size"]}
            again = explanation.at(**{k: v for k, v in asked.items() if v is not None})
            expected = expected_leaves(again)
            assert shown_leaves(tab) == expected, asked
            boxes = tab.evaluate("hshap.findings().classes[0].findings")
            assert sorted((box["start"], box["stop"], box["score"]) for box in boxes) == sorted(
                (list(box.start), list(box.stop), box.score) for box in again.boxes()
            )
            changes += expected.keys() != expected_leaves(explanation).keys()
    assert changes


def any_placement(rng, grid):
    """Return a random crop, padding, flip or change of size, at fractions of pixels too."""
    shape = [int(side) for side in rng.integers(5, 90, len(grid))]
    start, stop = [], []
    for side in shape:
        ends = np.round(rng.uniform(-0.2 * side, 1.2 * side, 2), int(rng.integers(0, 3)))
        low, high = (0, side) if abs(ends[0] - ends[1]) < 1 else ends
        is_beside = max(low, high) <= 0 or min(low, high) >= side
        low, high = (0, side) if is_beside else (low, high)
        start.append(low)
        stop.append(high)
    return hshap.Placement(grid, tuple(shape), tuple(start), tuple(stop))


def any_run(seed):
    """Return a random run of a random kind, at a random place."""
    rng = np.random.default_rng(seed)
    size = rng.choice([1, 2, 3, "auto"])
    size = size if size == "auto" else int(size)
    areas = [4, "auto"]
    partition = [
        hshap.Dyadic(size),
        hshap.Bisection(size),
        hshap.Shifted(hshap.Bisection(2), tuple(int(n) for n in rng.integers(-9, 9, 2))),
        hshap.Superpixels.from_labels(LABELS, min_area=areas[rng.integers(2)]),
        hshap.Superpixels(min_area=areas[rng.integers(2)], max_area=16),
    ][seed % 5]
    most = None if rng.random() < 0.5 else int(rng.integers(30, 200))
    search = [
        hshap.DepthFirst(float(rng.choice([0, 0.05, 0.4])), max_evaluations=most),
        hshap.DepthFirst(0.05, keep_whole=True, max_evaluations=most),
        hshap.BreadthFirst(float(rng.uniform(10, 80)), max_evaluations=most),
        hshap.Share(float(rng.uniform(0.02, 0.3)), most),
        hshap.Share(float(rng.uniform(0.1, 0.5)), most, of="finding"),
        hshap.GroupTesting(float(rng.choice([0, 0.05, 0.4])), max_evaluations=most),
    ][seed // 5 % 6]
    baseline = None
    if rng.random() < 0.3:  # several draws, so that coefficients have errors
        baseline = hshap.References(rng.random((3, 1, 24, 31)) * 0.2)
    image, made = explained(seed, partition, search, density=0.03, baseline=baseline)
    return image, replace(made, placement=any_placement(rng, made.grid))


def spins():
    """Return the members of a spin."""
    weights = np.where(np.random.default_rng(5).random((24, 31)) < 0.03, 1.0, 0.0)
    image = np.ones((1, 24, 31))
    explainer = hshap.Explainer(
        lambda batch: (batch[:, 0] * weights).sum(axis=(1, 2)),
        baseline=hshap.Constant(0.0),
        partition=hshap.Dyadic(2),
    )
    spin = hshap.cycle_spin(explainer, image, target=0, shifts=[0, 3, (5, 2)])
    yield from ((image, member) for member in spin.members)


def test_generated_runs_of_every_kind_are_read_as_in_python(show):
    pytest.importorskip("higra")
    runs = [*map(any_run, range(30)), *spins()]
    views = [View(f"{n}.png", image, {"one": made}) for n, (image, made) in enumerate(runs)]
    tab = show(views)
    rng = np.random.default_rng(0)
    changes = {}
    for number, (_, made) in enumerate(runs):
        tab.evaluate("(number) => hshap.open(number)", number)
        strengths = [part.coefficient for part in made.parts.values()]
        for _ in range(6):
            asked = {
                "tolerance": float(max(0, rng.choice(strengths))) if rng.random() < 0.8 else None,
                "percentile": float(rng.uniform(0, 100)) if rng.random() < 0.8 else None,
                "side": int(rng.integers(1, 12)) if rng.random() < 0.5 else None,
                "area": int(rng.integers(1, 60)) if rng.random() < 0.5 else None,
            }
            tab.evaluate("(asked) => hshap.set(asked)", asked)
            limits = tab.evaluate("hshap.limits()")
            is_levels = isinstance(made.settings.search, hshap.BreadthFirst)
            by = "percentile" if is_levels else "tolerance"
            is_grid = isinstance(made.games[0].region, hshap.Box)
            again = made.at(
                **{
                    key: value
                    for key, value in (
                        (by, limits["level"]),
                        ("min_size" if is_grid else "min_area", limits["size"]),
                    )
                    if value is not None
                }
            )
            assert shown_leaves(tab) == expected_leaves(again), (number, asked)
            boxes = tab.evaluate("hshap.findings().classes[0].findings")
            assert sorted((box["start"], box["stop"], box["score"]) for box in boxes) == sorted(
                (list(box.start), list(box.stop), box.score) for box in again.boxes()
            ), (number, asked)
            changed = expected_leaves(again).keys() != expected_leaves(made).keys()
            changes[number] = changes.get(number, 0) + changed
    assert sum(map(bool, changes.values())) > len(runs) / 2


def test_the_python_line_says_what_is_read(show):
    image, explanation = explained(0, hshap.Dyadic(2), hshap.DepthFirst(0.01))
    tab = show([View("x.png", image, {"one": explanation})])
    drawn(tab)
    assert tab.text_content("#python") == "explanation"
    tab.fill("#slider-tolerance-value", "0.125")
    tab.press("#slider-tolerance-value", "Enter")
    tab.fill("#slider-side-value", "6")
    tab.press("#slider-side-value", "Enter")
    drawn(tab)
    assert tab.text_content("#python") == "explanation.at(tolerance=0.125, min_size=6)"
    assert shown_leaves(tab) == expected_leaves(explanation.at(tolerance=0.125, min_size=6))
    tab.fill("#slider-tolerance-value", "0")  # finer than the run was
    tab.press("#slider-tolerance-value", "Enter")
    assert shown_leaves(tab) == expected_leaves(explanation.at(tolerance=0.01, min_size=6))
    tab.click("#reset")
    assert shown_leaves(tab) == expected_leaves(explanation)
    drawn(tab)
    assert f" {len(explanation.boxes())} findings on " in tab.text_content("#first")


def test_a_search_of_another_make_is_shown_as_it_was(show):
    def whole(root, draws):
        (game,) = yield [root]
        return hshap.SearchResult(game.children[:1])

    image = marked((8, 8), [3])
    explanation = hshap.Explainer(
        any_marked, baseline=hshap.Constant(0.0), partition=hshap.Dyadic(2), search=whole
    ).explain(image, 0)
    tab = show([View("x.png", image, {"one": explanation})])
    assert shown_leaves(tab) == expected_leaves(explanation)
    assert tab.locator("#sliders input").count() == 0


def test_nothing_in_a_name_becomes_markup(show):
    image, explanation = explained(0, hshap.Dyadic(4), hshap.DepthFirst())
    view = View(HOSTILE, image, {HOSTILE: explanation, "</title>{{script}}": explanation})
    for views in ([view], [view, replace(view, unit="km")]):
        tab = show(views, title=HOSTILE)
        assert tab.evaluate("window.pwned") is None
        shown = visible(HOSTILE)
        assert tab.title() == shown
        assert tab.text_content("#title") == shown
        assert tab.locator("img").count() == 0
        tab.evaluate("hshap.open(0)")
        assert tab.text_content("#where") == shown
        assert tab.locator("figcaption strong").first.text_content() == shown
        tab.hover(".screen")
        assert tab.evaluate("document.scripts.length") == 2 + 3 * len(views)


def test_scripts_that_are_not_the_page_s_own_do_not_run(show):
    image, explanation = explained(0, hshap.Dyadic(8), hshap.DepthFirst())
    tab = show([View("x.png", image, {"one": explanation})])
    policy = tab.get_attribute("meta[http-equiv]", "content")
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy


def test_hover_tells_coefficient_game_and_place(show):
    image, explanation = explained(3, hshap.Dyadic(2), hshap.DepthFirst())
    tab = show([View("x.png", image, {"one": explanation})])
    leaf = explanation.leaves[0]
    point_at(tab, leaf.start)
    text = tab.inner_text("#region")
    coefficient = explanation.parts[leaf].coefficient
    assert f"{coefficient:.4g}".rstrip("0") in text
    assert tab.locator("#region dd").nth(1).text_content() == "finding"
    assert f"x {leaf.start[1]} to {leaf.stop[1]}, y {leaf.start[0]} to {leaf.stop[0]}" in text
    assert "level" in text
    assert tab.locator("#region table tbody tr").count() == 16


def test_click_descends_and_escape_goes_up(show):
    image, explanation = explained(3, hshap.Dyadic(2), hshap.DepthFirst())
    tab = show([View("x.png", image, {"one": explanation})])
    leaf = explanation.leaves[0]
    assert tab.locator("#up").is_disabled()
    for depth in (1, 2):
        point_at(tab, leaf.start, click=True)
        assert tab.locator("#trail [aria-current]").count() == 1
        assert f"level {depth}:" in tab.text_content("#found")
    tab.keyboard.press("Escape")
    tab.evaluate("new Promise(requestAnimationFrame)")
    assert "level 1:" in tab.text_content("#found")
    tab.click("#up")
    tab.evaluate("new Promise(requestAnimationFrame)")
    assert tab.evaluate("hshap.state().focus") is None
    tab.locator("#trail .part:enabled").first.click()
    assert tab.evaluate("hshap.state().focus") is not None


def test_keys_alone_are_enough(show):
    image, explanation = explained(3, hshap.Dyadic(2), hshap.DepthFirst())
    tab = show([View("x.png", image, {"one": explanation})])
    tab.locator(".screen").focus()
    before = tab.evaluate("hshap.state()")
    for key in ("+", "ArrowRight", "ArrowDown", "n", "s"):
        tab.keyboard.press(key)
    after = tab.evaluate("hshap.state()")
    assert after["camera"] != before["camera"]
    assert after["finding"] == 0
    assert after["layers"]["heat"]
    tab.evaluate("new Promise(requestAnimationFrame)")
    assert "Finding 1 of" in tab.text_content("#found")
    tab.keyboard.press("Enter")
    assert tab.evaluate("hshap.state().focus") is not None
    tab.keyboard.press("Escape")
    tab.locator("#slider-tolerance").focus()
    tab.keyboard.press("PageUp")
    assert tab.evaluate("hshap.limits().level") > 0
    # Every control says what it is.
    assert (
        tab.evaluate(
            """[...document.querySelectorAll("input, select, button, [tabindex='0']")].filter(
             (e) => !(e.labels && e.labels.length) && !e.getAttribute("aria-label")
                    && !e.textContent.trim()).length"""
        )
        == 0
    )


def test_zoom_reaches_single_pixels_and_shows_them_as_they_are(show):
    pixels = np.random.default_rng(0).integers(0, 256, (3, 40, 50), dtype=np.uint8)
    _, explanation = explained(0, hshap.Dyadic(8), hshap.DepthFirst(), grid=(40, 50))
    tab = show([View("x.png", pixels, {"one": explanation})])
    tab.locator(".screen").focus()
    for _ in range(20):
        tab.keyboard.press("+")
    tab.evaluate("new Promise(requestAnimationFrame)")
    camera = tab.evaluate("hshap.state().camera")
    assert camera["scale"] == 64
    row, column = int(camera["y"]) + 2, int(camera["x"]) + 3
    x, y = (int((v + 0.5 - o) * 64) for v, o in ((column, camera["x"]), (row, camera["y"])))
    drawn = canvas_pixels(tab, 0)
    for dx, dy in ((0, 0), (25, 25), (-25, 25)):
        assert drawn[y + dy, x + dx, :3].tolist() == pixels[:, row, column].tolist()


def test_classes_stand_side_by_side(show):
    image, first = explained(0, hshap.Dyadic(2), hshap.DepthFirst())
    _, second = explained(1, hshap.Bisection(1), hshap.BreadthFirst(50))
    third = explained(2, hshap.Shifted(hshap.Dyadic(4), 3), hshap.DepthFirst(0.05))[1]
    tab = show([View("x.png", image, {"a": first, "b": second, "c": third})])
    assert tab.locator(".panel").count() == 3
    for klass, explanation in enumerate((first, second, third)):
        assert shown_leaves(tab, klass) == expected_leaves(explanation)
    tab.evaluate("hshap.set({tolerance: 0.02, percentile: 80, side: 5})")
    readings = (
        first.at(tolerance=0.02, min_size=5),
        second.at(percentile=80, min_size=5),
        third.at(tolerance=0.05, min_size=5),  # its own tolerance is higher
    )
    for klass, explanation in enumerate(readings):
        assert shown_leaves(tab, klass) == expected_leaves(explanation)
    tab.locator("#classes input").nth(1).uncheck()
    assert tab.locator(".panel").count() == 2
    assert tab.locator("figcaption strong").all_text_contents() == ["a", "c"]


def test_the_list_of_findings_names_its_class_where_there_are_several(show):
    image, explanation = explained(0, hshap.Dyadic(8), hshap.DepthFirst())
    alone = show([View("x.png", image, {"one": explanation})])
    assert alone.locator("#findings > p").count() == 0
    both = show([View("x.png", image, {"one": explanation, "two": explanation.at(min_size=16)})])
    assert both.inner_text("#findings > p") == "of one"
    both.evaluate("document.querySelectorAll('.screen')[1].focus()")
    drawn(both)
    assert both.inner_text("#findings > p") == "of two"


def test_clean_images_are_not_the_worst_by_overlap(show):
    image, explanation = explained(1, hshap.Dyadic(2), hshap.DepthFirst(0.1))
    found, none = explanation.saliency() > 0, np.zeros((24, 31), bool)
    truths = {"clean.png": none, "good.png": found, "bad.png": ~found}
    tab = show([View(name, image, {"one": explanation}, truth=t) for name, t in truths.items()])
    tab.select_option("#sort", "overlap")
    names = tab.locator("#cards strong").all_text_contents()
    assert names == ["bad.png", "good.png", "clean.png"]
    texts = tab.locator("#cards .small").all_text_contents()
    assert ["overlap" in text for text in texts] == [True, True, False]
    tab.locator(".card").nth(2).click()
    tab.wait_for_selector(".panel")
    assert "overlap" not in tab.inner_text(".panel")


def test_gallery_sorts_filters_and_opens(show):
    views = []
    for seed in range(4):
        image, explanation = explained(seed, hshap.Dyadic(2), hshap.DepthFirst(0.1 * seed))
        views.append(View(f"image {seed}.png", image, {"one": explanation}))
    nothing = hshap.Explainer(
        lambda batch: np.zeros(len(batch)),
        baseline=hshap.Constant(0.0),
        partition=hshap.Dyadic(8),
    ).explain(image, 0)
    views.append(View("empty.png", image, {"one": nothing, "two": nothing}))
    tab = show(views)
    names = tab.locator("#cards strong").all_text_contents
    assert names() == [view.name for view in views]
    tab.select_option("#sort", "share")
    shares = {v.name: float((v.explanations["one"].saliency() > 0).mean()) for v in views}
    assert names() == sorted(shares, key=shares.get, reverse=True)
    tab.select_option("#filter", "empty")
    assert names() == ["empty.png"]
    tab.select_option("#filter", "all")
    tab.fill("#search", "IMAGE 2")
    assert names() == ["image 2.png"]
    tab.fill("#search", "")
    tab.select_option("#filter-class", "two")
    assert names() == ["empty.png"]
    tab.select_option("#filter-class", "")
    tab.select_option("#sort", "name")
    tab.locator(".card").nth(1).click()
    tab.wait_for_selector(".panel")
    assert tab.text_content("#where") == "image 0.png"
    assert shown_leaves(tab) == expected_leaves(views[0].explanations["one"])
    tab.click("#next")
    tab.wait_for_selector(".panel")
    assert tab.text_content("#where") == "image 1.png"
    tab.click("#to-gallery")
    assert tab.locator("#cards li").count() == 5


def test_concerns_stand_in_the_first_line_of_the_page(show):
    image, fine = np.zeros((1, 8, 8)), hshap.demo.example()
    explainer = hshap.Explainer(lambda batch: batch.max(axis=(1, 2, 3)), hshap.Constant(0.0))
    (negative,) = explainer.explain_many([(image, 0)], positives=hshap.Positives())
    assert negative.how_sure.word == "negative"
    nothing = fine.at(tolerance=1e9)
    assert nothing.concerns[0].kind == "nothing"
    plain = replace(nothing, filled=0.1)
    assert [one.kind for one in plain.concerns] == ["nothing", "loose"]
    views = [
        View("bad.png", image, {"a": nothing, "b": plain}),
        View("good.png", image, {"a": fine}),
        View("clean.png", image, {"a": negative}),
    ]
    tab = show(views)
    line = tab.locator("#concerns")
    assert line.text_content().startswith("1 of 3 images has a concern")
    tab.select_option("#filter", "concern")
    assert tab.locator("#cards strong").all_text_contents() == ["bad.png"]
    assert tab.locator(".card .badge").first.text_content() == "look twice"
    tab.locator(".card").first.click()
    tab.wait_for_selector(".panel")
    assert line.is_visible()
    said = line.text_content().splitlines()
    # Each is said once: the gravest beside the badge, the others below.
    assert said == [f"Also (b): {plain.concerns[1]}"]
    assert tab.inner_text("#first").count(str(nothing.concerns[0])) == 2
    tab.evaluate("hshap.set({ side: 4 })")
    assert line.text_content().startswith("Also, about the run as it was (b): ")
    tab.evaluate("hshap.set({ side: null })")
    tab.click("#next")
    tab.wait_for_selector(".panel")
    assert line.is_hidden()


def test_what_is_seen_can_be_taken_away(show, tmp_path):
    image_module = pytest.importorskip("PIL.Image")
    image, explanation = explained(0, hshap.Dyadic(2), hshap.DepthFirst())
    truth = np.zeros((24, 31), bool)
    truth[3:9, 4:20] = True
    tab = show([View("scan <1>.png", image, {"one": explanation}, truth=truth)])
    with tab.expect_download() as waiting:
        tab.click("#save-json")
    assert waiting.value.suggested_filename == "scan_1_-findings.json"
    found = json.loads(waiting.value.path().read_text())
    assert found["image"] == "scan <1>.png"
    assert len(found["classes"][0]["leaves"]) == len(explanation.leaves)
    assert [box["score"] for box in found["classes"][0]["findings"]] == [
        box.score for box in explanation.boxes()
    ]
    with tab.expect_download() as waiting:
        tab.click("#save-png")
    waiting.value.save_as(tmp_path / "seen.png")
    picture = np.asarray(image_module.open(tmp_path / "seen.png").convert("RGB"))
    assert count_colours(picture) > 5


def test_layers_can_be_switched_off_one_by_one(show):
    image, explanation = explained(0, hshap.Dyadic(2), hshap.DepthFirst())
    truth = np.zeros((24, 31), bool)
    truth[3:9, 4:20] = True
    tab = show([View("x.png", image, {"one": explanation}, truth=truth)])

    def drawn():
        return int((canvas_pixels(tab, 1)[..., 3] > 0).sum())

    before = drawn()
    assert before
    for layer in ("leaves", "boxes"):
        tab.check(f"#layer-{layer}")
        now = drawn()
        assert now > before, layer
        before = now
    tab.keyboard.press("h")
    ruler = drawn()
    assert 0 < ruler < before / 4  # the scale bar stays
    tab.keyboard.press("h")
    assert drawn() == before
    for layer in ("map", "leaves", "boxes", "truth"):
        tab.uncheck(f"#layer-{layer}")
        now = drawn()
        assert now != before, layer
        before = now
    tab.check("#layer-visited")
    assert drawn() > before


def in_contexts():
    """Explain two places of which one is enough, and a third that only adds to the first."""

    def model(batch):
        one, other, third = batch[:, 0, 2, 3], batch[:, 0, 12, 17], batch[:, 0, 12, 3]
        return np.maximum(one, other) + one * third

    image = np.ones((1, 16, 20))
    return image, hshap.Explainer(
        model,
        baseline=hshap.Constant(0.0),
        partition=hshap.Bisection(1),
        search=hshap.BestFirst(contexts=4),
    ).explain(image, target=0)


def test_the_page_holds_the_map_of_each_context():
    _, explanation = in_contexts()
    table, _ = tabulate("x.png", {"one": explanation}, None)
    stored = table["classes"][0]
    for context in CONTEXTS:
        packed = stored["contexts"][context]
        steps = np.frombuffer(zlib.decompress(base64.b64decode(packed["values"])), np.int8)
        heat = explanation.attribution(context=context)
        error = np.abs(packed["top"] / 127 * steps.reshape(heat.shape) - heat).max()
        assert error <= packed["top"] / 254
    maps = [stored["map"], *stored["contexts"].values()]
    assert len({one["values"] for one in maps}) == 3
    _, other = explained(0, hshap.Dyadic(8), hshap.DepthFirst())
    assert tabulate("x.png", {"one": other}, None)[0]["classes"][0]["contexts"] is None
    assert (
        tabulate("x.png", {"one": explanation}, None, has_maps=False)[0]["classes"][0]["contexts"]
        is None
    )


def test_a_switch_shows_the_map_of_each_context(show):
    image, explanation = in_contexts()
    other, without = explained(0, hshap.Dyadic(8), hshap.DepthFirst())
    views = [View("x.png", image, {"one": explanation}), View("y.png", other, {"two": without})]
    tab = show(views, address="#image=x.png")
    names = tab.locator("#context option").all_text_contents()
    assert names == ["All contexts", "Enough alone", "Cannot be missing"]
    seen = []
    tab.focus("#context")
    for name in names:
        drawn(tab)
        seen.append(canvas_pixels(tab, 1).tobytes())
        assert ("" if name == names[0] else name.lower()) in tab.inner_text("#unit")
        tab.keyboard.press("ArrowDown")
    assert len(set(seen)) == 3
    tab.evaluate("hshap.open(1)")
    assert not tab.is_visible("#context")
    assert tab.evaluate("hshap.state().context") == "all"


def test_a_side_that_is_empty_is_an_empty_map(show):
    image = np.ones((1, 16, 20))
    explanation = hshap.Explainer(
        lambda batch: batch[:, 0, 2, 3] * batch[:, 0, 12, 17],
        baseline=hshap.Constant(0.0),
        partition=hshap.Bisection(1),
        search=hshap.BestFirst(contexts=2),
    ).explain(image, target=0)
    table, _ = tabulate("x.png", {"both": explanation}, None)
    assert table["classes"][0]["contexts"]["alone"] is None
    tab = show([View("x.png", image, {"both": explanation})])
    tab.select_option("#context", "alone")
    drawn(tab)
    assert tab.inner_text("#unit") == "Score per pixel, enough alone: nothing"
    tab.select_option("#context", "missing")
    drawn(tab)
    assert tab.inner_text("#unit") == "Score per pixel, cannot be missing"


def test_light_and_dark(show):
    image, explanation = explained(0, hshap.Dyadic(8), hshap.DepthFirst())
    ground = "getComputedStyle(document.body).backgroundColor"
    views = [View("x.png", image, {"one": explanation})]
    light, dark = (show(views, color_scheme=scheme) for scheme in ("light", "dark"))
    assert light.evaluate(ground) != dark.evaluate(ground)
    was = dark.evaluate(ground)
    light.click("#theme")
    assert light.evaluate(ground) == was
    dark.click("#theme")
    assert dark.evaluate(ground) != was


def test_a_large_image_with_many_regions_opens_and_moves(show, capsys, tmp_path):
    side = 4000
    rng = np.random.default_rng(0)
    image = rng.integers(0, 50, (3, side // 8, side // 8), dtype=np.uint8).repeat(8, 1).repeat(8, 2)
    explanation = enlarged(spotted(400), side // 400)
    regions = sum(len(game.children) for game in explanation.games)
    assert regions >= 500
    tab = show([View("large.png", image, {"spots": explanation})])
    opened = tab.evaluate("performance.now()")
    times = [tab.evaluate("(t) => hshap.set({tolerance: t})", t) for t in np.linspace(0, 1.9, 20)]
    with capsys.disabled():
        print(  # noqa: T201, timings are told, not tested
            f"\npage of {side} x {side}, {regions} regions: ready at most {opened:.0f} ms after it "
            f"was asked for, slider step {np.median(times):.1f} ms (median of {len(times)}), "
            f"{max(times):.1f} ms at most"
        )
    assert shown_leaf_count(tab) == len(explanation.at(tolerance=1.9).leaves)


def shown_leaf_count(tab):
    return tab.evaluate("hshap.findings().classes[0].leaves.length")


# Names from the command line

ATTACK = "window.pwned=1"
FILES = [
    f'"><img src=x onerror={ATTACK}>.png',
    f"javascript:{ATTACK}.png",
    "__proto__.png",
    "constructor.png",
    "cell\u202egnp.exe\n\x1b[2J\u200b.png",
    f"'`${{{ATTACK}}}{{{{data}}}}" + "x" * 180 + ".png",
]
CLASSES = [
    f"</script><script>{ATTACK}</script>",
    f"</title><svg onload={ATTACK}>",
    "__proto__",
    "constructor",
    f"javascript:{ATTACK}",
    "12\u202e34\n\u2066\u2028\x07\x9b",
    f'" onmouseover="{ATTACK}" x="',
    "https://example.invalid/" + "y" * 3000,
]


TARGETS = (0, 2, 5)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """Results of `hshap explain` for images and classes with names that attack a page."""
    image_module = pytest.importorskip("PIL.Image")
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "hostile_model.py").write_text(
        "import numpy as np\n"
        "def scores(batch):\n"
        f"    return np.repeat(batch.max(axis=(1, 2, 3))[:, None], {len(CLASSES)}, axis=1)\n"
    )
    (folder / "names.toml").write_text("classes = " + json.dumps(CLASSES), encoding="utf-8")
    (folder / "images").mkdir()
    pixels = np.zeros((16, 16, 3), np.uint8)
    pixels[5, 9] = 255
    for name in FILES:
        image_module.fromarray(pixels).save(folder / "images" / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        pictures.blank(patch)  # the page has none of them
        words = [word for number in TARGETS for word in ("-t", number)]
        words += ["--config", "names.toml", "--baseline", "constant:0", "--min-size", 4]
        words += ["--partition", "bisection"]
        told = command("explain", "images", "-m", "hostile_model:scores", *words, "--out", "found")
    assert not set(told) & OBEYED
    return folder


OBEYED = set("\x1b\x07\x9b\u202e\u2028\u2066\u200b")


def command(*words):
    app = pytest.importorskip("hshap.cli.app").app
    runner = pytest.importorskip("typer.testing").CliRunner()
    done = runner.invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.stderr
    return done.output


def test_names_of_files_and_classes_cannot_attack_the_page_of_a_run(visit, hostile):
    tab = visit(hostile / "found" / "index.html")
    shown = [visible(name) for name in FILES]
    classes = [visible(CLASSES[number]) for number in TARGETS]
    names = tab.locator("#cards strong").all_text_contents
    assert sorted(names()) == sorted(shown)
    options = tab.locator("#filter-class option").evaluate_all("all => all.map(one => one.value)")
    assert options[1:] == classes
    tab.select_option("#filter-class", "__proto__")
    tab.fill("#search", "__PROTO__")
    assert names() == ["__proto__.png"]
    tab.fill("#search", "")
    tab.select_option("#filter-class", "")
    for position in range(len(FILES)):
        tab.locator(".card").nth(position).click()
        tab.wait_for_selector(".panel")
        assert tab.text_content("#where") == shown.pop(shown.index(tab.text_content("#where")))
        assert tab.locator("figcaption strong").all_text_contents() == classes
        point_at(tab, (5, 9), click=True)
        assert "level 1:" in tab.text_content("#found")
        tab.locator("#classes input").first.uncheck()
        assert tab.locator(".panel").count() == len(classes) - 1
        tab.click("#to-gallery")
    assert shown == []
    tab.locator(".card").first.click()
    with tab.expect_download() as waiting:
        tab.click("#save-json")
    assert "/" not in waiting.value.suggested_filename
    found = json.loads(waiting.value.path().read_text())
    assert {one["name"] for one in found["classes"]} <= set(classes)
    assert tab.evaluate("window.pwned") is None
    assert tab.evaluate("Object.keys(Object.prototype).length") == 0
    assert tab.locator("img, svg, a[href^=javascript]").count() == 0


def test_names_inside_an_explanation_cannot_attack_the_page_that_view_makes(
    visit, hostile, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    explanation = hshap.Explanation.load(next((hostile / "found").glob("*.npz")))
    for number, klass in enumerate(CLASSES):
        name = FILES[number % len(FILES)]
        source = {"image": name, "class": klass, "model": klass}
        settings = explanation.settings.updated(source=source)
        replace(explanation, settings=settings).save(f"{number}.npz")
        told = command("view", f"{number}.npz")
        told += command("export", f"{number}.npz", "--format", "coco")
        assert not set(told) & OBEYED
        document = json.loads((tmp_path / f"{number}.json").read_text())
        assert document["images"][0]["file_name"] == name
        tab = visit(tmp_path / f"{number}.html")
        assert tab.title() == f"hshap: {visible(name)}"
        assert tab.locator("figcaption strong").all_text_contents() == [visible(klass)]
        point_at(tab, (5, 9), click=True)
        assert tab.evaluate("window.pwned") is None
        assert tab.locator("img, svg").count() == 0
    assert not set(command("compare", "5.npz", "5.npz")) & OBEYED
