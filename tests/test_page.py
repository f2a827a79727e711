"""What the page computes in a browser is what Python computes, and names on it do nothing."""

from __future__ import annotations

import json
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
    shown_boxes,
    shown_leaves,
    wait_until,
)
from oracle import any_marked, marked
from pages import TILE, enlarged, in_contexts, spotted

import hshap
from hshap.export.page import View, write_page

pytestmark = pytest.mark.browser

LABELS = np.kron(np.arange(48).reshape(6, 8), np.ones((4, 4), int))[:24, :31]


def inside(explanation):
    out = np.zeros(explanation.grid, int)
    for leaf in explanation.leaves:
        out[leaf.index] = 1
    return out


def read_as(tab, made):
    """Return the explanation at the strength on the page."""
    asked = tab.evaluate("hshap.state().tolerance")
    search = made.settings.search
    if asked is None or not isinstance(search, (hshap.DepthFirst, hshap.GroupTesting)):
        return made
    return made.at(tolerance=max(asked, search.tolerance))


def check_reading(tab, made, klass=0):
    """Compare leaves and findings on the page with those in Python, and return the latter."""
    again = read_as(tab, made)
    assert shown_leaves(tab, klass) == expected_leaves(again)
    least = -np.inf
    if not isinstance(made.settings.search, (hshap.DepthFirst, hshap.GroupTesting)):
        asked = tab.evaluate("hshap.state().tolerance")
        least = least if asked is None else asked  # weak findings are left out whole
    boxes = [box for box in again.boxes() if not box.score <= least]
    assert sorted(shown_boxes(tab, klass)) == sorted(boxes)
    return again


# Reading again, as `Explanation.at` does


def test_slider_and_field_read_as_at_does(show):
    image, made = explained(0, hshap.Dyadic(2), hshap.DepthFirst(0.01))
    tab = show([View("x.png", image, {"one": made})])
    seen = set()
    for place in (1, 250, 500, 1000):
        tab.locator("#tolerance").fill(str(place))
        seen.add(frozenset(expected_leaves(check_reading(tab, made))))
    assert len(seen) > 1
    # The line of Python says the same; a tolerance finer than the run's is the run's own.
    for typed, tolerance in (("0.125", 0.125), ("0", 0.01)):
        tab.fill("#tolerance-value", typed)
        tab.press("#tolerance-value", "Enter")
        drawn(tab)
        assert shown_leaves(tab) == expected_leaves(made.at(tolerance=tolerance))
        assert tab.text_content("#python") == f"explanation.at(tolerance={tolerance})"
    tab.click("#reset")
    drawn(tab)
    assert tab.text_content("#python") == "explanation"
    assert shown_leaves(tab) == expected_leaves(made)


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
    return hshap.images.Placement(grid, tuple(shape), tuple(start), tuple(stop))


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


def test_runs_of_every_kind_are_read_as_in_python(show):
    runs = [*map(any_run, range(30)), *spins()]
    tab = show([View(f"{n}.png", image, {"one": made}) for n, (image, made) in enumerate(runs)])
    rng = np.random.default_rng(0)
    changed = set()
    for number, (_, made) in enumerate(runs):
        tab.evaluate("(number) => hshap.open(number)", number)
        tab.evaluate("hshap.set(null)")
        check_reading(tab, made)
        strengths = [part.coefficient for part in made.parts.values()]
        for _ in range(6):
            tab.evaluate("(asked) => hshap.set(asked)", float(max(0, rng.choice(strengths))))
            again = check_reading(tab, made)
            if expected_leaves(again).keys() != expected_leaves(made).keys():
                changed.add(number)
    assert len(changed) > len(runs) / 4


def test_a_search_of_yours_is_shown_as_it_was(show):
    def search(root, draws):
        (game,) = yield [root]
        return hshap.protocols.SearchResult(game.children[:1])

    image = marked((8, 8), [3])
    explainer = hshap.Explainer(any_marked, hshap.Constant(0.0), hshap.Dyadic(2), search)
    explanation = explainer.explain(image, 0)
    tab = show([View("x.png", image, {"one": explanation})])
    assert shown_leaves(tab) == expected_leaves(explanation)
    assert tab.locator("#python").is_hidden()


def test_findings_in_contexts_have_the_scores_of_boxes(show):
    image, explanation = in_contexts()
    tab = show([View("x.png", image, {"one": explanation})])
    boxes = explanation.boxes()
    assert len({box.score for box in boxes}) > 1
    assert shown_boxes(tab, 0) == boxes
    assert shown_leaves(tab, 0) == expected_leaves(explanation)


def test_classes_stand_side_by_side(show):
    image, first = explained(0, hshap.Dyadic(2), hshap.DepthFirst())
    _, second = explained(1, hshap.Bisection(1), hshap.BreadthFirst(50))
    third = explained(2, hshap.Shifted(hshap.Dyadic(4), 3), hshap.DepthFirst(0.05))[1]
    tab = show([View("x.png", image, {"a": first, "b": second, "c": third})])
    assert tab.locator(".panel").count() == 3
    for asked in (None, 0.02):
        tab.evaluate("(asked) => hshap.set(asked)", asked)
        for klass, explanation in enumerate((first, second, third)):
            check_reading(tab, explanation, klass)
    assert tab.inner_text("#findings > p") == "of a"
    tab.evaluate("document.querySelectorAll('.screen')[1].focus()")
    drawn(tab)
    assert tab.inner_text("#findings > p") == "of b"
    tab.locator("#classes input").nth(1).uncheck()
    assert tab.locator("figcaption strong").all_text_contents() == ["a", "c"]


# The original image

PLACES = {
    "resized": {"shape": (120, 155)},
    "shrunk": {"shape": (12, 20)},
    "cropped": {"shape": (120, 155), "start": (10, 20), "stop": (110, 130)},
    "padded and flipped": {"shape": (90, 100), "start": (-8, 120), "stop": (90, -3.5)},
    # Corners that lie between two pixels, but for rounding.
    "fractions": {"shape": (60, 62), "start": (0.1, -0.9), "stop": (20.5, 49.800000000000004)},
    "flipped, of the same size": {"shape": (24, 31), "start": (0, 31), "stop": (24, 0)},
}


@pytest.mark.parametrize("name", PLACES)
def test_places_are_those_of_the_original_image(show, name):
    image, explanation = explained(3, hshap.Dyadic(2), hshap.DepthFirst(0.02))
    place = hshap.images.Placement(explanation.grid, **PLACES[name])
    placed = replace(explanation, placement=place)
    other = explained(5, hshap.Bisection("auto"), hshap.DepthFirst(), grid=(32, 20))[1]
    other = replace(other, placement=hshap.images.Placement(other.grid, **PLACES[name]))
    full = np.random.default_rng(0).integers(0, 256, place.shape, dtype=np.uint8)
    tabs = [
        show([View("x.png", image, {"a": placed}, original=False)]),
        show([View("x.png", full, {"a": placed}, original=True)]),
        show([View("x.png", full, {"a": placed, "b": other})]),  # another model, at another size
    ]
    for tab in tabs:
        assert tab.evaluate("hshap.findings()")["size"] == list(place.shape)
        for asked in (None, 0.4):
            tab.evaluate("(asked) => hshap.set(asked)", asked)
            for klass, made in enumerate((placed, other)[: 1 + (tab is tabs[2])]):
                assert shown_boxes(tab, klass) == read_as(tab, made).boxes()
        tab.evaluate("hshap.set(null)")
    # The region under a pixel is the one that the grid has there.
    for klass, made in enumerate((placed, other)):
        pixels = np.argwhere(made.placement.nearest(inside(made)))
        for tab in tabs[1 + klass :]:
            tab.evaluate("(n) => document.querySelectorAll('.screen')[n].focus()", klass)
            point_at(tab, pixels[len(pixels) // 2].tolist(), panel=klass)
            drawn(tab)
            assert tab.locator("#region dd").nth(1).text_content() == "finding"


# Pixels on the screen


def screen_values(tab, pixels):
    """Return the colour on the screen at some pixels of the image, as row, column."""
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


@pytest.mark.parametrize("kind", ["bytes", "CT"])
def test_window_and_level_show_the_grey_values(show, kind):
    kinds = {"bytes": (0, 256, np.uint8), "CT": (-1024, 3072, np.int16)}
    image = np.random.default_rng(0).integers(*kinds[kind][:2], (24, 31)).astype(kinds[kind][2])
    _, explanation = explained(0, hshap.Dyadic(8), hshap.DepthFirst())
    tab = show([View("x.png", image, {"one": explanation})])
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
    tab.select_option("#window-preset", label="As given")
    given = [0, 255] if kind == "bytes" else [image.min(), image.max()]
    assert tab.evaluate("hshap.state().window") == given


def test_colours_are_the_image_at_every_zoom(show):
    side = 2500
    assert side > 2 * TILE
    blocks = np.random.default_rng(0).integers(0, 256, (3, 25, 25), dtype=np.uint8)
    pixels = np.kron(blocks, np.ones((1, 100, 100), np.uint8))
    explanation = enlarged(spotted(500), side // 500)
    tab = show([View("large.png", pixels, {"spots": explanation})])
    assert tab.locator("#window").is_hidden()

    def is_shown(row, column):
        shown = np.array(screen_values(tab, [(row, column)])[0][:3], int)
        return np.abs(shown - pixels[:, row, column]).max() <= 1

    middles = [(50, 50), (1050, 950), (2250, 2350)]
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
    for _ in range(20):
        tab.keyboard.press("+")
    wait_until(tab, "hshap.state().camera.scale === 64")  # single pixels
    tab.evaluate("hshap.set(1.9)")
    assert len(shown_leaves(tab)) == len(explanation.at(tolerance=1.9).leaves)


# Volumes


def test_a_volume_has_three_planes_that_move_together(show):
    volume = np.random.default_rng(0).integers(0, 4000, (9, 14, 11)).astype(np.uint16)
    weights = np.zeros(volume.shape)
    weights[2:4, 5:9, 6:9], weights[7, 1, 1] = 1, 5
    explanation = hshap.Explainer(
        lambda batch: (batch[:, 0] * weights).sum(axis=(1, 2, 3)),
        baseline=hshap.Constant(0.0),
        partition=hshap.Bisection(2),
    ).explain(volume[None].astype(float), 0, layout="CTYX", spacing=(4, 1, 1))
    tab = show([View("scan", volume, {"lesion": explanation})])
    check_reading(tab, explanation)
    box = explanation.boxes()[0]  # the page opens on the strongest finding
    middle = [int(sum(ends) / 2) for ends in zip(box.start, box.stop, strict=True)]
    assert tab.evaluate("hshap.state().at") == middle
    black, white = tab.evaluate("hshap.state().window")
    for axis, ratio in enumerate((1, 4, 4)):  # frames are rows, seen from the front and the side
        canvas = canvas_pixels(tab, 2 * axis)
        camera = tab.evaluate("(axis) => hshap.cameras()[axis]", axis)
        assert camera["ratio"] == ratio
        row, column = (at for i, at in enumerate(middle) if i != axis)
        y = (row + 0.5 - camera["y"]) * camera["scale"] * ratio
        x = (column + 0.5 - camera["x"]) * camera["scale"]
        grey = 255 * (float(volume[tuple(middle)]) - black) / (white - black)
        assert abs(canvas[int(y), int(x), 0] - grey) <= 1
    # A click in the first plane moves the others, and so do keys and sliders.
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
    assert tab.locator("#planes label").all_text_contents() == ["Time", "Row", "Column"]
    tab.locator("#plane-0").fill("3")
    drawn(tab)
    assert tab.evaluate("hshap.state().at[0]") == 2
    assert tab.locator("figcaption span").first.text_content().startswith("Time 3 of 9")
    strip = canvas_pixels(tab, 0, "#planes canvas")[5, 14 :: 240 // 9, 3]
    found = [bool(inside(explanation)[plane].any()) for plane in range(9)]
    assert (strip[:9] > 0).tolist() == found


def test_a_scan_has_plane_names_and_its_head_up(show):
    volume = np.zeros((8, 10, 12), np.int16)
    volume[6, 2, 3] = 1000
    explanation = hshap.Explainer(
        lambda batch: batch[:, 0].max(axis=(1, 2, 3)),
        baseline=hshap.Constant(0.0),
        partition=hshap.Bisection(1),
    ).explain(volume[None].astype(float), 0, layout="CZYX")
    tab = show([View("ct", volume, {"lesion": explanation}, directions="SPL", values="HU")])
    drawn(tab)
    places = [text.split(" · ")[0] for text in tab.locator("figcaption span").all_text_contents()]
    assert places == ["Axial, slice 7 of 8", "Coronal, slice 3 of 10", "Sagittal, slice 4 of 12"]
    assert tab.locator("#window-preset option").all_text_contents()[-1] == "Liver"
    # The bright slice lies near the head, which is up: in the second line of the coronal plane.
    canvas, camera = canvas_pixels(tab, 2), tab.evaluate("hshap.cameras()[1]")
    across = int((3.5 - camera["x"]) * camera["scale"])
    greys = [
        canvas[int((row + 0.5 - camera["y"]) * camera["scale"]), across, 0] for row in range(8)
    ]
    assert np.argmax(greys) == 1
    # A click is at the place that is seen.
    screen = tab.locator(".screen").nth(1).bounding_box()
    x = screen["x"] + (3.5 - camera["x"]) * camera["scale"]
    tab.mouse.click(x, screen["y"] + (0.5 - camera["y"]) * camera["scale"])
    drawn(tab)
    assert tab.evaluate("hshap.state().at") == [7, 2, 3]


# Names

ATTACK = "window.pwned=1"
FILES = {  # as files are named, and as the page shows them
    f'"><img src=x onerror={ATTACK}>.png': None,
    f"javascript:{ATTACK}.png": None,
    "__proto__.png": None,
    "constructor.png": None,
    "cell\u202egnp.exe\n\x1b[2J\u200b.png": r"cell\u202egnp.exe\n\x1b[2J\u200b.png",
    f"'`${{{ATTACK}}}{{{{data}}}}" + "x" * 180 + ".png": None,
}
CLASSES = {
    f"</script><script>{ATTACK}</script>": None,
    f"</title><svg onload={ATTACK}>": None,
    "__proto__": None,
    f"javascript:{ATTACK}": None,
    f'" onmouseover="{ATTACK}" x="': None,
    "12\u202e34\n\u2066\u2028\x07\x9b": r"12\u202e34\n\u2066\u2028\x07\x9b",
}
OBEYED = set("\x1b\x07\x9b\u202e\u2028\u2066\u200b")


def visible(names):
    return [shown or name for name, shown in names.items()]


def is_unharmed(tab):
    assert tab.evaluate("window.pwned") is None
    assert tab.evaluate("Object.keys(Object.prototype).length") == 0
    assert tab.locator("img, svg, a[href^=javascript]").count() == 0


def test_foreign_scripts_do_not_run(browser, tmp_path):
    image, explanation = explained(0, hshap.Dyadic(8), hshap.DepthFirst())
    path = write_page(tmp_path / "x.html", [View("x.png", image, {"one": explanation})])
    tab = browser.new_page()
    tab.goto(path.as_uri())
    tab.evaluate("""() => {
        const script = document.createElement("script");
        script.textContent = "window.pwned = 1";
        document.body.append(script);
        const image = "<img src=x onerror='window.pwned = 1'>";
        document.body.insertAdjacentHTML("beforeend", image);
    }""")
    tab.wait_for_timeout(100)
    assert tab.evaluate("window.pwned") is None
    tab.close()


def command(*words):
    app = pytest.importorskip("hshap.cli.app").app
    runner = pytest.importorskip("typer.testing").CliRunner()
    done = runner.invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.stderr
    assert not set(done.output) & OBEYED


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
    (folder / "names.toml").write_text("classes = " + json.dumps(list(CLASSES)), encoding="utf-8")
    (folder / "images").mkdir()
    pixels = np.zeros((16, 16, 3), np.uint8)
    pixels[5, 9] = 255
    for name in FILES:
        image_module.fromarray(pixels).save(folder / "images" / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        pictures.blank(patch)  # the page has none of them
        words = ["-m", "hostile_model:scores", "-t", 0, "-t", 2, "-t", 5, "--min-size", 4]
        words += ["--config", "names.toml", "--baseline", "constant:0", "--partition", "bisection"]
        command("explain", "images", *words, "--out", "found")
    return folder


def test_names_do_nothing_on_any_page(visit, hostile, tmp_path, monkeypatch):
    tab = visit(hostile / "found" / "index.html")
    shown, classes = visible(FILES), [visible(CLASSES)[number] for number in (0, 2, 5)]
    names = tab.locator("#cards strong").all_text_contents
    assert sorted(names()) == sorted(shown)
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
        assert "Finding 1 of" in tab.text_content("#found")
        tab.click("#to-gallery")
    tab.locator(".card").first.click()
    with tab.expect_download() as waiting:
        tab.click("#save-json")
    assert "/" not in waiting.value.suggested_filename
    is_unharmed(tab)
    # Names inside of explanations, on the pages of `hshap view`.
    monkeypatch.chdir(tmp_path)
    explanation = hshap.Explanation.load(next((hostile / "found").glob("*.npz")))
    pairs = zip(FILES, visible(FILES), CLASSES, visible(CLASSES), strict=True)
    for number, (name, shown, klass, shown_class) in enumerate(pairs):
        source = {"image": name, "class": klass, "model": klass}
        settings = explanation.settings.updated(source=source)
        replace(explanation, settings=settings).save(f"{number}.npz")
        command("view", f"{number}.npz")
        command("export", f"{number}.npz", "--format", "coco")
        document = json.loads((tmp_path / f"{number}.json").read_text())
        assert document["images"][0]["file_name"] == name
        tab = visit(tmp_path / f"{number}.html")
        assert tab.title() == f"hshap: {shown}"
        assert tab.locator("figcaption strong").all_text_contents() == [shown_class]
        is_unharmed(tab)
