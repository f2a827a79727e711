"""The page as text: what it holds, how large it is, and that nothing in it can become markup.

One page is opened in a browser here; the other tests of pages in browsers have their own files.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace

import numpy as np
import pytest
from browsers import canvas_pixels, drawn
from browsers import explained as weighted_run
from oracle import any_marked, marked
from pages import ReadPage, enlarged, in_contexts, page_labels, page_map, spotted

import hshap
from hshap import ArgumentError
from hshap.explanation.storage import pack_games
from hshap.export.page import View, page, write_page

IMAGE = marked((16, 20), [5, 200])
IMAGE.flags.writeable = False  # what is given is only read
HOSTILE = "</script><script>alert(1)</script><!--\u2028\u2029&\"'\u202e"
VISIBLE = "</script><script>alert(1)</script><!--\\u2028\\u2029&\"'\\u202e"


def explained(partition=None, image=IMAGE):
    return hshap.Explainer(
        any_marked, baseline=hshap.Constant(0.0), partition=partition or hshap.Dyadic(2)
    ).explain(image, 0)


EXPLANATION = explained()
OTHER = replace(explained(hshap.Bisection(4)), placement=hshap.images.Placement((16, 20), (32, 40)))
VIEW = View("x.png", IMAGE, {"marked": EXPLANATION})


def test_a_page_opens_and_shows_a_finding(show):
    image, explanation = in_contexts()
    tab = show([VIEW, View("y.png", image, {"one": explanation})])
    tab.locator(".card").first.click()
    tab.wait_for_selector(".panel")
    found = tab.evaluate("hshap.findings().classes[0].findings")
    assert [(tuple(one["start"]), tuple(one["stop"]), one["score"]) for one in found] == [
        tuple(box) for box in EXPLANATION.boxes()
    ]
    tab.click("#finding-1")
    drawn(tab)
    assert tab.evaluate("location.hash") == "#image=x.png&finding=1"
    tab.click("#next")
    tab.wait_for_selector(".panel")
    assert tab.text_content("#where") == "y.png"
    before = canvas_pixels(tab, 1).tobytes()
    tab.click("#side-alone")
    drawn(tab)
    assert canvas_pixels(tab, 1).tobytes() != before
    assert "enough alone" in tab.inner_text("#unit")


@pytest.mark.parametrize(
    ("text", "shown"),
    [(HOSTILE, VISIBLE), ("\ud800 half", "\\ud800 half"), ("{{data}} {{script}}",) * 2],
)
def test_names_are_data_wherever_they_stand(text, shown, tmp_path):
    view = View(text, IMAGE, {text: EXPLANATION, f"{text} 2": EXPLANATION})
    document = page([view], title=text)
    document.encode()
    in_folder = write_page(tmp_path / "x.html", [view], title=text, form="folder")
    for read in (ReadPage(document), ReadPage(in_folder)):
        assert read.index["title"] == read.index["views"][0]["name"] == shown
        assert read.table()["name"] == shown
        for names in (read.index["views"][0]["classes"], read.table()["classes"]):
            assert [one["name"] for one in names] == [shown, f"{shown} 2"]
        for part in (read.data, *read.parts.values()):
            assert not set("<>&\u2028\u2029") & set(part)
    # The page's own: index, table, small picture, tile, code.
    assert document.count("<script") == 5
    assert document.lower().count("</script") == 5


def test_the_policy_allows_own_code_alone():
    document = page([VIEW])
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', document)[1]
    code = document[document.rindex("<script>") + 8 : document.rindex("</script>")]
    style = re.search(r"<style>(.*?)</style>", document, re.DOTALL)[1]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    for name, text in (("script-src", code), ("style-src", style)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{name} 'sha256-{digest}'" in policy


def test_the_page_names_no_address():
    assert not re.search(r"(https?:)?//[a-z]", page([VIEW]).replace("///", ""))


RNG = np.random.default_rng(0)
PICTURES = {  # what is given: kind, bits, low, step, window
    "bytes": (RNG.integers(0, 256, (7, 5), np.uint8), "grey", 8, 0, 1, [0, 255]),
    "16 bits": (RNG.integers(0, 2**16, (1025, 3)).astype(np.uint16), "grey", 16, 0, 1, None),
    "many tiles": (RNG.integers(0, 256, (2100, 1500), np.uint8), "grey", 8, 0, 1, [0, 255]),
    "truth": (np.array([[False, True]]), "grey", 8, 0, 1, [0, 1]),
    "signed": (np.array([[-5, 7], [1, 2]], np.int16), "grey", 16, -5, 1, [-5, 7]),
    "wide": (np.array([[0, 2**20], [1, 2]]), "grey", 16, 0, 2**20 / 65535, [0, 2**20]),
    "fractions": (np.array([[-0.5, 0.5, 65534.5]]), "grey", 16, -0.5, 1, None),
    "unit": (np.array([[0.0, 0.2, 1.0]]), "grey", 16, 0, 1 / 65535, [0, 1]),
    "even": (np.full((1, 2), 7.0), "grey", 16, 7, 1, [7, 7]),
    "grey colours": (np.stack([np.arange(12).reshape(3, 4) * 9] * 3), "grey", 16, 0, 1, None),
    "two channels": (np.array([[[0, 1]], [[200, 4]]], np.uint8), "grey", 16, 2.5, None, [0, 255]),
    "colour": (RNG.integers(0, 256, (3, 16, 20), np.uint8), "colour", 8, 0, 1, [0, 255]),
    "four channels": (RNG.integers(0, 256, (4, 7, 5), np.uint8), "colour", 8, 0, 1, [0, 255]),
}


@pytest.mark.parametrize("name", PICTURES)
def test_the_image_is_on_the_page_pixel_by_pixel(name):
    image, kind, bits, low, step, window = PICTURES[name]
    placed = replace(EXPLANATION, placement=hshap.images.Placement((16, 20), image.shape[-2:]))
    read = ReadPage(page([View("x", image, {"a": placed}, original=True)]))
    facts, found = read.table()["image"], read.pixels()
    assert (facts["kind"], facts["bits"], facts["low"]) == (kind, bits, low)
    if kind == "colour":
        assert np.array_equal(np.moveaxis(found, -1, 0), image[:3])
        return
    values = image[0] if name == "grey colours" else image.mean(0) if image.ndim > 2 else image
    assert facts["window"] == (window or [values.min(), values.max()])
    assert facts["step"] == (step or facts["step"])
    error = np.abs(facts["low"] + facts["step"] * found.astype(float) - values)
    assert error.max() <= (0 if step == 1 and name != "fractions" else facts["step"] / 2 + 1e-9)


@pytest.mark.parametrize(
    "partition",
    [
        hshap.Dyadic(2),
        hshap.Shifted(hshap.Bisection(3), (5, 7)),
        hshap.Superpixels.from_labels(np.arange(320).reshape(16, 20) // 7),
    ],
    ids=["grid", "shifted", "labels"],
)
def test_every_region_is_a_set_of_pixels(partition):
    """Each region has the labels of its finest parts, and the truth its own."""
    explanation = explained(partition)
    truth = np.zeros((16, 20), bool)
    truth[3:8, 2:19] = True
    truth.flags.writeable = False
    table = ReadPage(page([View("x.png", IMAGE, {"a": explanation}, truth=truth)])).table()
    assert np.array_equal(page_labels(table["truth"], 2, truth.shape) == 1, truth)
    stored = table["classes"][0]
    parents, pieces = stored["parents"], stored["pieces"]
    owner = [*range(len(parents)), *pieces]
    finest = np.array(owner)[page_labels(stored["labels"], len(owner), (16, 20))]
    assert bool(pieces) == isinstance(partition, hshap.Shifted)
    for part in explanation.parts.values():
        expected = np.zeros((16, 20), bool)
        expected[part.region.index] = True
        own = [number for number, one in enumerate(stored["strengths"]) if one == part.coefficient]
        areas = [np.isin(finest, [number, *_below(parents, number)]) for number in own]
        assert any(np.array_equal(area, expected) for area in areas)


def _below(parents, region):
    """Return the numbers of all regions inside of one."""
    inside = [number for number, parent in enumerate(parents) if parent == region]
    return inside + [one for number in inside for one in _below(parents, number)]


RUNS = {
    "depth first": (hshap.Dyadic(2), hshap.DepthFirst(0.01)),
    "automatic": (hshap.Dyadic("auto"), hshap.DepthFirst()),
    "whole": (hshap.Bisection(2), hshap.DepthFirst(0.05, keep_whole=True)),
    "budget": (hshap.Bisection(1), hshap.DepthFirst(max_evaluations=60)),
    "group testing": (hshap.Bisection(1), hshap.GroupTesting(0.05)),
    "free forms": (hshap.Superpixels(min_area=4), hshap.DepthFirst()),
}


@pytest.mark.parametrize("name", RUNS)
def test_two_numbers_tell_the_leaves_at_each_tolerance(name):
    """A region is a leaf from `least` to below `most`, as `Explanation.at` has it."""
    partition, search = RUNS[name]
    image, made = weighted_run(3, partition, search)
    table = ReadPage(page([View("x.png", image, {"one": made})])).table()["classes"][0]
    limits = table["limits"]
    assert limits["run"] == search.tolerance
    by_number = dict(enumerate(pack_games(made)[1]))
    coefficients = sorted(max(part.coefficient, search.tolerance) for part in made.parts.values())
    seen = set()
    for tolerance in [search.tolerance, *coefficients[::3], 2 * coefficients[-1]]:
        pairs = zip(limits["least"], limits["most"], strict=True)
        leaves = {by_number[n] for n, (a, b) in enumerate(pairs) if a <= tolerance < b}
        assert leaves == set(made.at(tolerance=tolerance).leaves)
        seen.add(frozenset(leaves))
    assert len(seen) > 1


def test_the_page_holds_each_context_s_map():
    image, explanation = in_contexts()
    read = ReadPage(page([View("x", image, {"one": explanation}), VIEW]))
    stored = read.table()["classes"][0]
    for context, packed in stored["sides"].items():
        found, error = page_map(packed, explanation.grid)
        heat = explanation.attribution(context=context)
        assert (np.abs(found - heat) <= error + 1e-12).all()
    maps = [stored["map"], *stored["sides"].values()]
    assert len({one["values"] for one in maps}) == 3
    assert read.table(1)["classes"][0]["sides"] is None
    both = hshap.Explainer(
        lambda batch: batch[:, 0, 2, 3] * batch[:, 0, 12, 17],
        baseline=hshap.Constant(0.0),
        partition=hshap.Bisection(1),
        search=hshap.BestFirst(contexts=2),
    ).explain(image, target=0)
    empty = ReadPage(page([View("x", image, {"both": both})])).table()["classes"][0]
    assert empty["sides"]["alone"] is None  # neither place is enough
    assert empty["sides"]["missing"]


def test_a_large_image_adds_little_but_itself():
    side = 4000
    explanation = enlarged(spotted(400), side // 400)
    assert sum(len(game.children) for game in explanation.games) > 500
    image = np.zeros((1, side, side), np.uint8)
    read = ReadPage(page([View("large.png", image, {"spots": explanation})]))
    table = read.table()
    assert table["classes"][0]["grid"] == [side, side]
    assert len(table["classes"][0]["labels"]) < 100_000
    assert len(read.data) + len(read.parts[f"{read.home()}/view"]) < 3e6


def test_values_that_are_not_known_are_null():
    image = np.ones((1, 8, 8))
    drawn = hshap.Explainer(
        lambda batch: batch.sum(axis=(1, 2, 3)),
        baseline=hshap.References(np.random.default_rng(0).random((3, 1, 8, 8))),
        partition=hshap.Dyadic(4),
    ).explain(image, 0)
    table = ReadPage(page([View("x.png", image, {"a": drawn.at(min_size=8)})])).table()
    assert table["classes"][0]["errors"] == [None]


def test_a_page_is_whole_or_as_it_was(tmp_path):
    single, many, folder = (tmp_path / name for name in ("page.html", "i.html", "i_files"))
    assert write_page(single, [VIEW]) == single
    write_page(many, (replace(VIEW, name=name) for name in "ab"), form="folder")
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert before[single].decode() == page([VIEW])
    assert len(list(folder.rglob("*.js"))) == 4

    def failing():
        yield VIEW
        message = "no more"
        raise RuntimeError(message)

    with pytest.raises(ArgumentError):
        write_page(single, [])
    with pytest.raises(RuntimeError):
        write_page(many, failing(), form="folder")
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before
    write_page(many, [VIEW], form="folder")
    assert len(list(folder.rglob("*.js"))) == 2
    assert set(tmp_path.iterdir()) == {single, many, folder}


def test_a_folder_of_others_is_not_touched(tmp_path):
    (tmp_path / "x_files").mkdir()
    (tmp_path / "x_files" / "thesis.txt").write_text("mine")
    with pytest.raises(ArgumentError, match="not the folder of a page"):
        write_page(tmp_path / "x.html", [VIEW], form="folder")
    assert [path.name for path in tmp_path.rglob("*")] == ["x_files", "thesis.txt"]


def test_only_a_large_page_has_a_folder(tmp_path):
    side = 3000
    noise = np.random.default_rng(0).integers(0, 256, (3, side, side), dtype=np.uint8)
    large = View("large.png", noise, {"spots": enlarged(spotted(300), side // 300)})
    write_page(tmp_path / "small.html", [VIEW])
    write_page(tmp_path / "large.html", [VIEW, large, VIEW])
    assert {path.name for path in tmp_path.iterdir()} == {
        "small.html", "large.html", "large_files",
    }  # fmt: skip
    read = ReadPage(tmp_path / "large.html")
    assert len(list((tmp_path / "large_files").rglob("view.js"))) == 2  # two views are the same
    names = {path.stem for path in (tmp_path / "large_files" / read.home(1)).iterdir()}
    assert len(names - {"view", "thumb"}) == 9 + 4 + 1
    assert [view["name"] for view in read.index["views"]] == ["x.png", "large.png", "x.png"]
    assert np.array_equal(np.moveaxis(read.pixels(1), -1, 0), noise)


def test_parts_are_named_by_their_content():
    other = IMAGE.copy()
    other[0, 0, 0] += 0.5
    views = [
        VIEW,
        replace(VIEW, name="y.png"),
        replace(VIEW, image=other),
        replace(VIEW, pixel_size=2.0),
        View("x.png", IMAGE, {"marked": EXPLANATION.at(min_size=8)}),
    ]
    homes = [ReadPage(page([view, VIEW])).home() for view in views]
    assert len(set(homes)) == len(views)
    again = View("x.png", IMAGE.copy(), {"marked": EXPLANATION})
    assert ReadPage(page([views[1], again])).home(1) == homes[0]  # on another page


SMALL = explained(image=marked((8, 10), [3]))  # of another grid, at the same place
SIZES = {"a": SMALL.placed((32, 40)), "b": OTHER}
MISTAKES = {
    "form": (lambda: write_page("x.html", [VIEW], form="zip"), "form is 'zip'", "'folder'"),
    "no views": (lambda: page([]), "views", "at least one View"),
    "a bare view": (lambda: page(VIEW), "views", "[View(...)]"),
    "not a view": (lambda: page([VIEW, "x"]), "views[1] is 'x'", "pass a View"),
    "title": (lambda: page([VIEW], title=3), "title is 3", "text"),
    "frame": (lambda: EXPLANATION.view(height=3), "height", "200"),
}
VIEWS = {  # arguments in place of those of VIEW
    "pixel size": ({"pixel_size": -1}, "pixel_size is -1", "0.5"),
    "pixel sizes": ({"pixel_size": (1, 2, 3)}, "pixel_size is (1, 2, 3)", "2 of them"),
    "directions": ({"directions": "S"}, "directions is 'S'", '"SPL"'),
    "unit": ({"unit": 3}, "unit is 3", '"mm"'),
    "window": ({"window": (1, 1)}, "window is (1, 1)", "(0, 4095)"),
    "name": ({"name": 3}, "name is 3", "file name"),
    "no explanation": ({"explanations": {}}, "explanations is {}", "dictionary"),
    "bare explanation": ({"explanations": EXPLANATION}, "explanations", "dictionary"),
    "not one": ({"explanations": {"a": 3}}, "explanations['a'] is 3", "explain"),
    "class name": ({"explanations": {1: EXPLANATION}}, "class name", "text"),
    "other size": ({"image": IMAGE[:, :9]}, "(1, 9, 20)", "(channels, 16, 20)"),
    "channels last": ({"image": np.zeros((16, 20, 3))}, "(16, 20, 3)", "(channels, 16, 20)"),
    "signal": (
        {"image": np.zeros((1, 8)), "explanations": {"a": explained(image=marked((8,), [3]))}},
        "(8,)",
        "explanation.plot",
    ),
    "text as image": ({"image": np.full((16, 20), "a")}, "<U1", "an array of floats"),
    "NaN": ({"image": np.full((16, 20), np.nan)}, "image", "nan_to_num"),
    "truth of another size": (
        {"truth": np.zeros((3, 3), bool)}, "truth is bool of shape (3, 3)", "(16, 20)",
    ),
    "truth in numbers": ({"truth": np.zeros((16, 20))}, "float64", "mask > 0"),
    "not the original": (
        {"explanations": {"a": OTHER}, "original": True},
        "original is True, but the image has (16, 20) pixels, and not (32, 40)",
        "leave original out",
    ),
    "two images": (
        {"explanations": {"a": EXPLANATION, "b": OTHER}},
        "explanations['b'] has another place",
        "one image",
    ),
    "two sizes": ({"explanations": SIZES}, "(1, 16, 20)", "original image of 32 x 40"),
    "truth for two sizes": (
        {"explanations": SIZES, "image": np.zeros((32, 40)), "truth": np.zeros((16, 20), bool)},
        "truth is given",
        "one size",
    ),
}  # fmt: skip
MISTAKES |= {
    name: ((lambda changes=changes: replace(VIEW, **changes)), *words)
    for name, (changes, *words) in VIEWS.items()
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_names_the_argument_and_the_fix(name):
    call, blamed, fix = MISTAKES[name]
    with pytest.raises(ArgumentError) as caught:
        call()
    message = str(caught.value)
    assert blamed in message
    assert fix in message
    assert "\n" not in message
