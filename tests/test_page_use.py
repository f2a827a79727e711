"""The page as people use it: first line, looking, reviewing, addresses, volumes, many images."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from browsers import canvas_pixels, drawn, explained, flat_pixels, point_at
from oracle import any_marked, marked
from pages import enlarged, spotted

import hshap
from hshap.export.page import View, write_page
from hshap.partitions.regions import mask

AXE = Path(__file__).parent / "javascript" / "node_modules" / "axe-core" / "axe.min.js"
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # of pycocotools
NOTE = '<b>old</b> scar & "more"'


def wait_until(tab, condition, seconds=30):
    """Wait for a condition in the page; its policy forbids that a script evaluates the text."""
    for _ in range(seconds * 20):
        if tab.evaluate(condition):
            return
        tab.wait_for_timeout(50)
    pytest.fail(f"{condition} did not come to pass")


def only(explanation, image, **options):
    return [View("x.png", image, {"one": explanation}, **options)]


# The first line


def together(batch):
    """Score two pixels at once, which no part has alone."""
    return batch[:, 0, 0, 0] * batch[:, 0, 7, 7]


def explain_by(model, baseline=0.0, search=None):
    image = np.ones((1, 8, 8))
    return image, hshap.Explainer(
        model,
        baseline=hshap.Constant(baseline),
        partition=hshap.Dyadic(2),
        search=search or hshap.DepthFirst(),
    ).explain(image, 0)


RUNS = {
    "supported": (
        lambda: (np.zeros((1, 8, 8)), hshap.demo.example()),
        "no check of this run raised a concern",
    ),
    "look twice": (
        lambda: (np.zeros((1, 8, 8)), hshap.demo.example().at(tolerance=1e9)),
        "nothing was found",
    ),
    "do not trust": (lambda: explain_by(together), "act together"),
}


@pytest.mark.parametrize("word", RUNS)
def test_the_first_line_tells_score_findings_and_how_sure(show, word):
    make, reason = RUNS[word]
    image, explanation = make()
    assert explanation.how_sure.word == word
    tab = show([View("x.png", image, {"lesion": explanation})])
    line = tab.inner_text("#first")
    count = len(explanation.boxes())
    findings = "1 finding" if count == 1 else f"{count} findings"
    assert line.startswith(f"lesion: score {explanation.score:g}, baseline 0. {findings} on ")
    assert tab.inner_text(".badge") == word
    assert reason in explanation.how_sure.reason
    assert explanation.how_sure.reason in line
    assert "May be missed: " in line
    # Each word of the line says on hover what it means.
    for shown in tab.locator("#first abbr").all():
        assert len(shown.get_attribute("title")) > 40


def test_the_page_tells_once_that_the_budget_ended_the_search(show):
    image = np.eye(8)[None]
    explanation = hshap.Explainer(
        hshap.demo.brightest,
        baseline=hshap.Constant(0.0),
        partition=hshap.Dyadic(1),
        search=hshap.DepthFirst(max_evaluations=20),
    ).explain(image, target=0)
    assert explanation.unfinished
    tab = show(only(explanation, image))
    (told,) = [one for one in explanation.concerns if one.kind == "unfinished"]
    assert (tab.inner_text("#first") + tab.inner_text("#concerns")).count(str(told)) == 1


def test_the_page_speaks_to_readers_of_results(show):
    image, explanation = explained(3, hshap.Dyadic(2), hshap.DepthFirst())
    tab = show(only(explanation, image))
    point_at(tab, explanation.leaves[0].start)
    tab.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    tab.evaluate("document.querySelector('#about').remove()")  # the audit is for experts
    words = set(tab.inner_text("body").lower().replace(",", " ").split())
    assert not words & {"leaf", "leaves", "reading", "parts", "games", "or-gap"}
    assert {"finding", "strength", "checked"} <= words


# Looking


def test_one_key_hides_the_overlay_wherever_the_focus_is(show):
    image, explanation = explained(0, hshap.Dyadic(2), hshap.DepthFirst())
    tab = show(only(explanation, image))
    before = (canvas_pixels(tab, 1)[..., 3] > 0).sum()
    for place in ("#next", "#slider-tolerance", "#hide", ".screen"):
        tab.evaluate("(at) => document.querySelector(at).focus()", place)
        tab.keyboard.press("h")
        drawn(tab)
        assert (canvas_pixels(tab, 1)[..., 3] > 0).sum() < before / 3
        tab.keyboard.press("h")
        drawn(tab)
        assert (canvas_pixels(tab, 1)[..., 3] > 0).sum() == before
    tab.locator("#slider-tolerance-value").focus()
    tab.keyboard.press("h")  # a field takes the letter
    assert not tab.evaluate("hshap.state().hidden")


def screen_values(tab, pixels):
    """Return the grey on the screen at some pixels of the image, as row, column."""
    drawn(tab)
    camera = tab.evaluate("hshap.state().camera")
    canvas = canvas_pixels(tab, 0)
    return [
        canvas[
            int((row + 0.5 - camera["y"]) * camera["scale"] * camera["ratio"]),
            int((column + 0.5 - camera["x"]) * camera["scale"]),
        ].tolist()
        for row, column in pixels
    ]


GREYS = {
    "bytes": np.random.default_rng(0).integers(0, 256, (24, 31), dtype=np.uint8),
    "16 bits": np.random.default_rng(0).integers(0, 65536, (24, 31)).astype(np.uint16),
    "CT": np.random.default_rng(0).integers(-1024, 3072, (24, 31)).astype(np.int16),
    "floats": np.random.default_rng(0).normal(size=(24, 31)),
    "unit": np.random.default_rng(0).random((24, 31)).astype(np.float32),
    "truth": np.random.default_rng(0).random((24, 31)) < 0.5,
}


@pytest.mark.parametrize("kind", GREYS)
def test_window_and_level_show_the_grey_values_of_the_image(show, kind):
    image = GREYS[kind]
    _, explanation = explained(0, hshap.Dyadic(8), hshap.DepthFirst())
    tab = show(only(explanation, image))
    pixels = [(0, 0), (11, 17), (23, 30), (5, 29)]
    for level, width in ((None, None), (300, 200), (700, 1500), (500, 40)):
        if level is not None:
            tab.fill("#window-level", str(level))
            tab.fill("#window-width", str(width))
        black, white = tab.evaluate("hshap.state().window")
        values = np.array([float(image[place]) for place in pixels])
        expected = 255 * np.clip((values - black) / (white - black), 0, 1)
        shown = np.array(screen_values(tab, pixels))
        assert np.abs(shown[:, 0] - expected).max() <= 0.51 + 255 * 2**-16
        assert (shown[:, :3] == shown[:, :1]).all()
    point_at(tab, (11, 17))
    assert tab.inner_text("#value").startswith("x 17, y 11, value ")
    told = float(tab.inner_text("#value").rpartition(" ")[2])
    assert told == pytest.approx(float(image[11, 17]), rel=1e-3, abs=1e-3)
    tab.click("#window-reset")
    low, high = tab.evaluate("hshap.state().window")
    given = (0, 255) if kind == "bytes" else (0, 1) if kind in {"unit", "truth"} else None
    assert (low, high) == (given or (image.min(), image.max()))


def test_a_picture_in_colour_has_no_window(show):
    _, explanation = explained(0, hshap.Dyadic(8), hshap.DepthFirst())
    pixels = np.random.default_rng(0).integers(0, 256, (3, 24, 31), dtype=np.uint8)
    tab = show(only(explanation, pixels))
    assert tab.locator("#window").is_hidden()


def test_a_picture_of_many_tiles_is_the_image_at_every_zoom(show):
    side, tile = 2500, 1024
    blocks = np.random.default_rng(0).integers(0, 256, (3, 25, 25), dtype=np.uint8)
    pixels = np.kron(blocks, np.ones((1, 100, 100), np.uint8))
    assert side > 2 * tile
    tab = show(only(enlarged(spotted(500), side // 500), pixels))

    def is_shown(row, column):
        shown = np.array(screen_values(tab, [(row, column)])[0][:3], int)
        return np.abs(shown - pixels[:, row, column]).max() <= 1

    middles = [(50, 50), (1050, 950), (1550, 2050), (2250, 2350)]
    for place in middles:
        assert is_shown(*place)
    for row, column in middles:
        tab.locator(".screen").focus()
        tab.keyboard.press("0")
        box, camera = tab.locator(".screen").bounding_box(), tab.evaluate("hshap.state().camera")
        tab.mouse.move(
            box["x"] + (column - camera["x"]) * camera["scale"],
            box["y"] + (row - camera["y"]) * camera["scale"],
        )
        for _ in range(14):
            tab.mouse.wheel(0, -150)
        wait_until(tab, "hshap.state().camera.scale > 2")
        for _ in range(40):  # tiles come one by one
            if is_shown(row, column):
                break
            tab.wait_for_timeout(50)
        assert is_shown(row, column)


def test_the_scale_bar_has_the_unit_of_the_pixel_size(show):
    image, explanation = explained(0, hshap.Dyadic(8), hshap.DepthFirst())
    plain = show(only(explanation, image))
    first = canvas_pixels(plain, 1)
    sized = show(only(explanation, image, pixel_size=0.7, unit="µm"))
    assert not np.array_equal(first, canvas_pixels(sized, 1))
    assert plain.evaluate("hshap.findings()")["pixelSize"] is None
    found = sized.evaluate("hshap.findings()")
    assert (found["pixelSize"], found["unit"]) == ([0.7, 0.7], "µm")


def test_findings_have_their_size_in_the_unit_of_the_pixel_size(show):
    image, explanation = explained(0, hshap.Dyadic(8), hshap.DepthFirst())
    first = explanation.boxes()[0]
    high, wide = (b - a for a, b in zip(first.start, first.stop, strict=True))
    tab = show(only(explanation, image, pixel_size=(0.5, 0.25)))
    drawn(tab)
    size = f"{wide * 0.25:g} x {high * 0.5:g} mm"
    assert tab.inner_text("#finding-1").endswith(size)
    tab.click("#finding-1")
    drawn(tab)
    assert tab.inner_text("#found").endswith(size)
    assert " mm" not in show(only(explanation, image)).inner_text("#findings")


def test_colours_of_findings_differ_from_those_of_the_image(show):
    _, explanation = explained(0, hshap.Dyadic(8), hshap.DepthFirst())
    chosen = set()
    for colour in ((250, 230, 60), (30, 150, 130), (170, 40, 90)):
        pixels = np.broadcast_to(np.array(colour, np.uint8)[:, None, None], (3, 24, 31))
        tab = show(only(explanation, pixels))
        tab.uncheck("#layer-map")
        drawn(tab)
        chosen.add(tab.input_value("#map"))
        low, middle, high = (
            float(tab.text_content(f"#legend-{at}")) for at in ("low", "middle", "high")
        )
        largest = max(explanation.parts[leaf].coefficient for leaf in explanation.leaves)
        assert low == 0
        assert high == pytest.approx(largest, rel=1e-3)
        assert middle == pytest.approx(largest / 2, rel=1e-3)
    assert len(chosen) > 1


# Reviewing


def test_reviews_are_kept_and_saved(visit, browser, tmp_path):  # noqa: PLR0915, one story
    coco_module = pytest.importorskip("pycocotools.coco")
    image, explanation = explained(3, hshap.Dyadic(2), hshap.DepthFirst())
    boxes = explanation.boxes()
    assert len(boxes) >= 3
    path = write_page(tmp_path / "r.html", only(explanation, image), title="t")
    context = browser.new_context()
    tab = visit(path, context=context)
    items = tab.locator("#findings .go")
    strengths = tab.locator(".list .strength").all_text_contents()
    scores = [float(text.removeprefix(", strength ")) for text in strengths]
    assert scores == sorted(scores, reverse=True)
    items.nth(1).click()
    drawn(tab)
    assert tab.evaluate("document.activeElement.id") == "finding-2"  # the focus stays
    tab.keyboard.press("a")
    drawn(tab)
    assert items.nth(1).locator(".verdict").inner_text() == "accepted"
    tab.keyboard.press("n")
    drawn(tab)
    tab.keyboard.press("r")
    drawn(tab)
    tab.keyboard.press("e")
    tab.keyboard.type(NOTE)
    tab.keyboard.press("Escape")
    drawn(tab)
    tab.close()
    tab = visit(path, context=context)
    verdicts = tab.locator("#findings .verdict").all_inner_texts()
    assert verdicts[:3] == ["", "accepted", "rejected ✎"]
    tab.locator("#findings .go").nth(2).click()
    drawn(tab)
    assert tab.input_value("#review-note") == NOTE
    with tab.expect_download() as waiting:
        tab.click("#save-json")
    found = json.loads(waiting.value.path().read_text())["classes"][0]["findings"]
    assert [(one["verdict"], one["note"]) for one in found[:3]] == [
        (None, ""), ("accepted", ""), ("rejected", NOTE),
    ]  # fmt: skip
    with tab.expect_download() as waiting:
        tab.click("#save-reviews")
    (saved,) = json.loads(waiting.value.path().read_text())["images"]
    assert saved["image"] == "x.png"
    assert sorted(one["verdict"] for one in saved["findings"]) == ["accepted", "rejected"]
    for button, count in (("#save-coco", len(boxes) - 1), ("#save-reviews-coco", 1)):
        with tab.expect_download() as waiting:
            tab.click(button)
        waiting.value.save_as(tmp_path / "coco.json")
        coco = coco_module.COCO(str(tmp_path / "coco.json"))
        annotations = coco.loadAnns(coco.getAnnIds())
        assert len(annotations) == count
        found = mask(explanation.leaves, explanation.grid)
        every = [
            box for number, box in enumerate(boxes) if (number == 1 if count == 1 else number != 2)
        ]
        for annotation, box in zip(annotations, every, strict=True):
            (top, left), (bottom, right) = box.start, box.stop
            assert annotation["bbox"] == [left, top, right - left, bottom - top]
            inside = coco.annToMask(annotation).astype(bool)
            assert inside.sum() == annotation["area"]
            assert (inside <= found).all()
            rows, columns = np.nonzero(inside)
            assert (rows.min(), rows.max() + 1) == (top, bottom)
            assert (columns.min(), columns.max() + 1) == (left, right)
    context.close()


def test_all_findings_together_are_the_leaves_in_coco(show):
    mask_module = pytest.importorskip("pycocotools.mask")
    for partition in (hshap.Dyadic(2), hshap.Shifted(hshap.Dyadic(3), (5, -7))):
        image, explanation = explained(1, partition, hshap.DepthFirst())
        tab = show(only(explanation, image))
        shown = np.zeros(explanation.grid, int)
        for one in tab.evaluate("hshap.coco()")["annotations"]:
            counts = one["segmentation"]
            assert all(run > 0 for run in counts["counts"][1:])
            shown += mask_module.decode(mask_module.frPyObjects(counts, *counts["size"]))
        assert np.array_equal(shown, mask(explanation.leaves, explanation.grid).astype(int))


def test_reviews_belong_to_one_explanation(show, visit, browser, tmp_path):
    image, one = explained(3, hshap.Dyadic(2), hshap.DepthFirst())
    _, other = explained(4, hshap.Dyadic(2), hshap.DepthFirst())
    context = browser.new_context()
    tab = visit(write_page(tmp_path / "a.html", only(one, image)), context=context)
    tab.keyboard.press("n")
    tab.keyboard.press("a")
    drawn(tab)
    again = replace(one, seconds=99.0)  # the same explanation, on another page
    path = tmp_path / "again.html"
    tab = visit(write_page(path, [View("y.png", image, {"b": again})]), context=context)
    assert "accepted" in tab.locator("#findings .verdict").all_inner_texts()
    tab = visit(write_page(tmp_path / "b.html", only(other, image)), context=context)
    assert set(tab.locator("#findings .verdict").all_inner_texts()) == {""}
    context.close()


# Addresses


def test_images_and_findings_have_addresses_and_back_works(show, visit, tmp_path):
    image, explanation = explained(3, hshap.Dyadic(2), hshap.DepthFirst())
    name = "a b&finding=9#<i>.png"
    views = [View(name, image, {"one": explanation, "two": explanation}) for _ in range(3)]
    tab = show(views)
    tab.locator(".card").nth(1).click()
    tab.wait_for_selector(".panel")
    tab.keyboard.press("n")
    tab.keyboard.press("n")
    drawn(tab)
    address = tab.evaluate("location.hash")
    assert tab.evaluate("[hshap.state().number, hshap.state().finding]") == [1, 1]
    tab.go_back()
    wait_until(tab, "hshap.state().finding === 0")
    tab.go_back()
    wait_until(tab, "hshap.state().finding === -1")
    assert tab.evaluate("hshap.state().number") == 1
    tab.go_back()
    wait_until(tab, "hshap.state().number === null")
    assert tab.locator(".card").count() == 3
    tab.go_forward()
    wait_until(tab, "hshap.state().number === 1")
    tab = visit(tmp_path / "page.html", address=address)
    assert tab.evaluate("[hshap.state().number, hshap.state().finding]") == [1, 1]
    tab.evaluate("hshap.open(2)")
    limits = "&class=2&tolerance=0.1"
    tab = visit(tmp_path / "page.html", address=tab.evaluate("location.hash") + limits)
    assert tab.evaluate("[hshap.state().number, hshap.state().current]") == [2, 1]
    assert tab.evaluate("hshap.limits().level") == 0.1


@pytest.mark.parametrize("address", ["#image=none", "#finding=7", "#image=x.png&finding=99&side=a"])
def test_an_address_that_leads_nowhere_opens_the_page(show, address):
    image, explanation = explained(3, hshap.Dyadic(2), hshap.DepthFirst())
    tab = show(only(explanation, image), address=address)
    assert tab.locator(".panel").count() == 1


# The original image

PLACES = {
    "resized": {"shape": (50, 61)},
    "shrunk": {"shape": (12, 20)},
    "cropped": {"shape": (60, 70), "start": (10, 20), "stop": (34, 51)},
    "padded": {"shape": (20, 31), "start": (-2, 0), "stop": (22, 31)},
    "flipped": {"shape": (48, 62), "start": (0, 62), "stop": (48, 0)},
    # Corners that lie between two pixels, but for rounding.
    "fractions": {"shape": (60, 62), "start": (0.1, -0.9), "stop": (20.5, 49.800000000000004)},
    "flipped, of the same size": {"shape": (24, 31), "start": (0, 31), "stop": (24, 0)},
}


@pytest.mark.parametrize("name", PLACES)
def test_places_are_those_of_the_original_image(show, name):
    image, explanation = explained(3, hshap.Dyadic(2), hshap.DepthFirst())
    place = hshap.Placement(explanation.grid, **PLACES[name])
    placed = replace(explanation, placement=place)
    truth = mask(explanation.leaves, explanation.grid)
    other = np.random.default_rng(0).integers(0, 256, place.shape, dtype=np.uint8)
    for shown, original in ((image, False), (other, True)):
        tab = show([View("x.png", shown, {"one": placed}, original=original)])
        found = tab.evaluate("hshap.findings()")
        assert found["size"] == list(place.shape)
        assert [
            (tuple(one["start"]), tuple(one["stop"]), one["score"])
            for one in found["classes"][0]["findings"]
        ] == [tuple(box) for box in placed.boxes()]
        seen = np.zeros(place.shape, int)
        mask_module = pytest.importorskip("pycocotools.mask")
        for one in tab.evaluate("hshap.coco()")["annotations"]:
            counts = one["segmentation"]
            seen += mask_module.decode(mask_module.frPyObjects(counts, *counts["size"]))
        assert np.array_equal(seen > 0, place.nearest(truth))
    # On the original image, the region under a pixel is the one that the grid has there.
    leaf = explanation.leaves[0]
    middle = [int(sum(ends) / 2) for ends in zip(*place.box(leaf.start, leaf.stop), strict=True)]
    point_at(tab, middle)
    assert tab.locator("#region dd").nth(1).text_content() == "finding"


# Volumes


def test_a_volume_has_three_planes_that_move_together(show):
    rng = np.random.default_rng(0)
    volume = rng.integers(0, 4000, (9, 14, 11)).astype(np.uint16)
    weights = np.zeros(volume.shape)
    weights[2:4, 5:9, 6:9] = 1
    weights[7, 1, 1] = 5
    explanation = hshap.Explainer(
        lambda batch: (batch[:, 0] * weights).sum(axis=(1, 2, 3)),
        baseline=hshap.Constant(0.0),
        partition=hshap.Bisection(2),
    ).explain(volume[None].astype(float), 0)
    tab = show([View("scan", volume, {"lesion": explanation}, pixel_size=(2, 1, 1))])
    found = tab.evaluate("hshap.findings().classes[0].findings")
    assert [(tuple(one["start"]), tuple(one["stop"])) for one in found] == [
        (box.start, box.stop) for box in explanation.boxes()
    ]
    assert tab.locator(".panel").count() == 3
    shown = {flat_pixels(leaf, volume.shape) for leaf in explanation.leaves}
    pixels = {
        frozenset(p for a, b in leaf["runs"] for p in range(a, b))
        for leaf in tab.evaluate("hshap.leaves()")
    }
    assert pixels == shown
    tab.keyboard.press("n")
    drawn(tab)
    box = explanation.boxes()[0]
    middle = [int(sum(ends) / 2) for ends in zip(box.start, box.stop, strict=True)]
    assert tab.evaluate("hshap.state().at") == middle
    black, white = tab.evaluate("hshap.state().window")
    for axis in range(3):
        screen = tab.locator(".screen").nth(axis).bounding_box()
        canvas = canvas_pixels(tab, 2 * axis)
        camera = tab.evaluate("(axis) => hshap.cameras()[axis]", axis)
        row, column = (at for i, at in enumerate(middle) if i != axis)
        y = (row + 0.5 - camera["y"]) * camera["scale"] * camera["ratio"]
        x = (column + 0.5 - camera["x"]) * camera["scale"]
        grey = 255 * (float(volume[tuple(middle)]) - black) / (white - black)
        assert abs(canvas[int(y), int(x), 0] - grey) <= 1
        assert abs(screen["width"] - canvas.shape[1]) < 1
    # A click in the first plane moves the others.
    camera = tab.evaluate("hshap.cameras()[0]")
    screen = tab.locator(".screen").first.bounding_box()
    tab.mouse.click(
        screen["x"] + (middle[2] + 1.5 - camera["x"]) * camera["scale"],
        screen["y"] + (middle[1] + 0.5 - camera["y"]) * camera["scale"],
    )
    drawn(tab)
    assert tab.evaluate("hshap.state().at") == [middle[0], middle[1], middle[2] + 1]
    tab.keyboard.press("PageUp")
    assert tab.evaluate("hshap.state().at[0]") == middle[0] - 1


def test_a_thick_volume_is_drawn_by_its_spacing_and_has_a_slider_for_each_axis(show):
    volume = np.zeros((1, 6, 20, 30))
    volume[0, 4, 5, 9] = volume[0, 1, 15, 20] = 1.0
    volume[0, 1] *= 0.5
    explanation = hshap.Explainer(
        lambda batch: batch.sum(axis=(1, 2, 3, 4)), hshap.Constant(0.0), hshap.Bisection(1)
    ).explain(volume, 0, layout="CTYX", spacing=(4.0, 1.0, 1.0))
    tab = show([View("film", volume, {"dots": explanation})])
    ratios = [tab.evaluate("(axis) => hshap.cameras()[axis].ratio", axis) for axis in range(3)]
    assert ratios == [1, 4, 4]  # rows are frames in the planes from the front and from the side
    labels = tab.locator("#planes label").all_text_contents()
    assert labels == ["Time", "Row", "Column"]
    assert tab.locator("#planes canvas").first.get_attribute("aria-label") == (
        "Time: findings in 2 of 6"
    )
    tab.locator("#plane-0").fill("4")
    drawn(tab)
    assert tab.evaluate("hshap.state().at[0]") == 4
    assert tab.locator("#planes output").first.text_content() == "4 of 0 to 5"
    strip = canvas_pixels(tab, 0, "#planes canvas")[5, 20::40, 3]
    assert (strip > 0).tolist() == [False, True, False, False, True, False]
    tab.keyboard.press("n")
    drawn(tab)
    assert tab.locator("#plane-0").input_value() == "4"  # the strongest finding


def test_a_picture_has_no_slider_for_planes(show):
    image, explanation = explained(3, hshap.Dyadic(2), hshap.DepthFirst())
    tab = show([View("image.png", image, {"one": explanation})])
    assert not tab.locator("#planes").is_visible()


# Many images


def many(count):
    image, explanation = explained(3, hshap.Dyadic(2), hshap.DepthFirst())
    return [View(f"image {number}.png", image, {"one": explanation}) for number in range(count)]


def test_a_folder_holds_the_data_and_images_are_loaded_when_they_are_looked_at(show, tmp_path):
    asked = []
    tab = show(iter(many(60)), form="folder")
    tab.on("request", lambda request: asked.append(request.url))
    near = "[...document.querySelectorAll('#cards canvas')].filter((one) => one.width).length"
    wait_until(tab, f"{near} > 3")
    assert tab.evaluate(near) < 40
    tab.locator("#cards li").nth(59).scroll_into_view_if_needed()
    wait_until(tab, f"{near} > 3")
    assert tab.evaluate(near) < 40  # those far above were dropped
    assert not [url for url in asked if "/view" in url]
    tab.locator(".card").nth(59).click()
    tab.wait_for_selector(".panel")
    drawn(tab)
    assert len([url for url in asked if "/view" in url]) == 1
    single = show(many(1))
    expected = single.evaluate("hshap.findings()")
    for number in (59, 3):
        tab.evaluate("(number) => hshap.open(number)", number)
        assert tab.evaluate("hshap.findings().classes") == expected["classes"]
    tab.keyboard.press("n")
    tab.keyboard.press("a")
    drawn(tab)
    reviewed = tab.evaluate("hshap.reviewedCoco()")
    assert {one["verdict"] for one in reviewed["annotations"]} == {"accepted"}
    assert len(reviewed["images"]) == 60  # all of them are of one explanation


def test_an_open_page_never_shows_parts_of_a_newer_one(browser, tmp_path):
    first, second, third = many(3)
    path = write_page(tmp_path / "p.html", [first, second, third], form="folder")
    context = browser.new_context()
    tab = context.new_page()
    tab.goto(path.as_uri())
    tab.evaluate("hshap.ready")
    write_page(path, [third, first], form="folder")
    tab.evaluate("hshap.open(2)")  # the same image has another number on the new page
    assert tab.evaluate("hshap.findings()")["image"] == third.name
    assert tab.locator(".panel").count() == 1
    tab.evaluate("hshap.open(1)")
    told = tab.inner_text("#found")
    assert "view.js is missing; if the page was made again, load it again" in told
    assert "else keep the folder p_files beside it" in told
    tab.evaluate("hshap.open(0)")
    assert tab.evaluate("hshap.findings()")["image"] == first.name
    context.close()


# Layout and access


def test_on_a_phone_the_image_stays_in_view(show):
    image, explanation = explained(3, hshap.Dyadic(2), hshap.DepthFirst())
    tab = show(only(explanation, image), viewport={"width": 390, "height": 780})
    tab.evaluate("document.querySelector('#save-coco').scrollIntoView()")
    frame = tab.locator(".screen").bounding_box()
    assert frame["y"] >= 0
    assert frame["y"] + frame["height"] <= 780
    assert frame["height"] > 180
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    assert tab.locator("#save-coco").is_visible()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [(1200, 800), (390, 780)], ids=["desk", "phone"])
def test_axe_finds_no_fault(show, theme, size):
    if not AXE.is_file():
        pytest.skip("axe-core is not installed; scripts/setup dev installs it where npm is")
    image, explanation = explained(3, hshap.Dyadic(2), hshap.DepthFirst())
    doubtful = explain_by(together)[1]
    views = [
        View("x.png", image, {"one": explanation, "two": explanation}),
        View("y.png", np.ones((8, 8)), {"one": doubtful}),
    ]
    width, height = size
    tab = show(
        views, color_scheme=theme, bypass_csp=True, viewport={"width": width, "height": height}
    )
    tab.add_script_tag(content=AXE.read_text(encoding="utf-8"))
    for number in (None, 0, 1):
        tab.evaluate("(number) => hshap.open(number)", number)
        tab.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        if number is not None:
            tab.keyboard.press("n")
        drawn(tab)
        tab.wait_for_timeout(200)
        faults = tab.evaluate(
            "axe.run().then((found) => found.violations.map((one) => "
            "[one.id, one.help, one.nodes.map((node) => node.html + node.failureSummary)]))"
        )
        assert faults == []


def test_tab_reaches_everything_and_enter_uses_it(show):
    image, explanation = explained(3, hshap.Dyadic(2), hshap.DepthFirst())
    tab = show([*many(1), View("y.png", image, {"one": explanation})])
    tab.locator(".card").first.focus()
    tab.keyboard.press("Enter")
    tab.wait_for_selector(".panel")
    reached = set()
    tab.evaluate("document.body.focus()")
    for _ in range(80):
        tab.keyboard.press("Tab")
        reached.add(tab.evaluate("document.activeElement.id || document.activeElement.className"))
    wanted = {"to-gallery", "next", "screen", "finding-1", "hide", "layer-map", "map", "opacity"}
    wanted |= {"window-level", "slider-tolerance", "save-coco", "save-reviews", "theme"}
    assert wanted <= reached
    tab.locator("#finding-2").focus()
    tab.keyboard.press("Enter")
    drawn(tab)
    assert tab.evaluate("[hshap.state().finding, document.activeElement.id]") == [1, "finding-2"]
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.id") == "review-accepted"
    tab.keyboard.press("Enter")
    drawn(tab)
    assert tab.get_attribute("#review-accepted", "aria-pressed") == "true"
    assert tab.evaluate("document.activeElement.id") == "review-accepted"


# Notebooks


def test_a_notebook_shows_the_page_in_place(visit, browser, tmp_path):
    image = marked((16, 20), [5, 200])
    explanation = hshap.Explainer(
        any_marked, baseline=hshap.Constant(0.0), partition=hshap.Dyadic(2)
    ).explain(image, 0)
    frame = explanation.view(image, name='a"<b>.png')
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html><body>{frame._repr_html_()}", encoding="utf-8")
    context = browser.new_context()
    tab = context.new_page()
    complaints = []
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.goto(path.as_uri())
    inside = tab.frame_locator("iframe")
    inside.locator(".panel").wait_for()
    assert inside.locator("#where").inner_text() == 'a"<b>.png'
    inside.locator("#finding-1").click()
    inside.locator("#review-accepted").click()
    inside.locator(".verdict.accepted").wait_for()
    assert "before you close it" in inside.locator("#kept").inner_text()
    assert complaints == []
    assert "Frame" in repr(frame)
    context.close()
