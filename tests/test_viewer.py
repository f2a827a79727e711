"""The page as text: what it holds, how large it is, and that nothing in it can become markup."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import zlib
from dataclasses import replace

import numpy as np
import pytest
from oracle import any_marked, marked
from pages import enlarged, spotted

import hshap
from hshap import ArgumentError
from hshap._util.raster import png
from hshap._util.visible import visible
from hshap.export.page import View, page, write_page
from hshap.export.page.document import as_json
from hshap.export.page.picture import shown, to_bytes
from hshap.export.page.tables import tabulate
from hshap.export.page.tiles import TILE, levels_of, tiles
from hshap.partitions.regions import mask

IMAGE = marked((16, 20), [5, 200])
HOSTILE = "</script><script>alert(1)</script><!--\u2028\u2029&\"'"


def explained(partition=None, image=IMAGE):
    return hshap.Explainer(
        any_marked, baseline=hshap.Constant(0.0), partition=partition or hshap.Dyadic(2)
    ).explain(image, 0)


EXPLANATION = explained()
PLACED = replace(EXPLANATION, placement=hshap.Placement((16, 20), shape=(32, 40)))
VIEW = View("x.png", IMAGE, {"marked": EXPLANATION})


def block(text, name):
    return re.search(f'<script type="[a-z/]+" id="{re.escape(name)}">([^<]*)</script>', text)[1]


def home_of(text, number=0):
    """Return the first part of the names of an image's parts."""
    return json.loads(block(text, "data"))["views"][number]["home"]


def view_of(text, number=0):
    return json.loads(block(text, f"{home_of(text, number)}/view"))


def cells_of(table):
    """Return the cell of each pixel, from the runs of a table."""
    numbers = np.frombuffer(zlib.decompress(base64.b64decode(table["runs"])), "<u4")
    lines = int(np.prod([len(axis) for axis in table["repeats"]]))
    lengths, cells = numbers[lines:].reshape(2, -1)
    assert numbers[:lines].sum() == len(cells)
    plane = np.repeat(cells, lengths).reshape(*map(len, table["repeats"]), table["grid"][-1])
    for axis, repeats in enumerate(table["repeats"]):
        plane = np.repeat(plane, repeats, axis=axis)
    return plane


@pytest.mark.parametrize("text", [HOSTILE, "\ud800 half a character", "{{data}} {{script}}"])
def test_names_are_data_wherever_they_stand(text):
    view = View(text, IMAGE, {text: EXPLANATION, f"{text} 2": EXPLANATION})
    document = page([view], title=text)
    document.encode()
    table = json.loads(block(document, "data"))
    shown = visible(text)
    assert table["title"] == table["views"][0]["name"] == view_of(document)["name"] == shown
    for names in (table["views"][0]["classes"], view_of(document)["classes"]):
        assert [one["name"] for one in names] == [shown, f"{shown} 2"]
    # The page's own: index, table, small picture, tile, code.
    assert document.count("<script") == 5
    assert document.lower().count("</script") == 5
    assert "<!--" not in block(document, "data") + block(document, f"{home_of(document)}/view")


def test_json_holds_no_sign_that_ends_a_script_or_a_line():
    written = as_json({HOSTILE: [HOSTILE]})
    assert not set("<>&\u2028\u2029") & set(written)
    assert json.loads(written) == {HOSTILE: [HOSTILE]}


def test_the_policy_allows_the_page_s_own_script_and_style_alone():
    document = page([VIEW])
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', document)[1]
    code = document[document.rindex("<script>") + 8 : document.rindex("</script>")]
    style = re.search(r"<style>(.*?)</style>", document, re.DOTALL)[1]
    assert "default-src 'none'" in policy
    for name, text in (("script-src", code), ("style-src", style)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{name} 'sha256-{digest}'" in policy


def test_the_page_names_no_address():
    assert not re.search(r"(https?:)?//[a-z]", page([VIEW]).replace("///", ""))


def test_the_image_is_in_it_pixel_by_pixel():
    pixels = np.random.default_rng(0).integers(0, 256, (3, 16, 20), dtype=np.uint8)
    document = page([View("x.png", pixels, {"marked": EXPLANATION})])
    assert np.array_equal(
        read_png(base64.b64decode(block(document, f"{home_of(document)}/0-0-0"))), pixels
    )


def read_png(data):
    image_module = pytest.importorskip("PIL.Image")
    shown = np.asarray(image_module.open(io.BytesIO(data)))
    return shown if shown.ndim == 2 else np.moveaxis(shown, -1, 0)


@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (5, 4, 3), (1, 9, 3)])
def test_png_keeps_every_pixel(shape):
    pixels = np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)
    shown = read_png(png(pixels))
    assert np.array_equal(shown, pixels if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0))


@pytest.mark.parametrize(
    ("image", "shown"),
    [
        (np.array([[0, 128, 255]], np.uint8), [[0, 128, 255]]),
        (np.array([[[0.0, 0.2, 1.0]]]), [[0, 51, 255]]),
        (np.array([[1000, 1500, 2000]], np.uint16), [[0, 128, 255]]),
        (np.array([[False, True]]), [[0, 255]]),
        (np.full((1, 2), 7.0), [[0, 0]]),
        (np.array([[[0.0]], [[1.0]]]), [[128]]),
        (np.array([[[0]], [[200]]], np.uint8), [[100]]),
        (np.array([[[10]], [[20]], [[30]], [[40]]], np.uint8), [[[10, 20, 30]]]),
    ],
)
def test_numbers_become_bytes_as_plot_shows_them(image, shown):
    before = image.copy()
    assert to_bytes(image).tolist() == shown
    assert np.array_equal(image, before)


@pytest.mark.parametrize(
    "partition",
    [
        hshap.Dyadic(2),
        hshap.Shifted(hshap.Bisection(3), (5, 7)),
        hshap.Superpixels.from_labels(np.arange(320).reshape(16, 20) // 7),
    ],
    ids=["grid", "shifted", "labels"],
)
def test_every_region_is_a_set_of_cells(partition):
    if isinstance(partition, hshap.Superpixels):
        pytest.importorskip("higra")
    explanation = explained(partition)
    truth = np.zeros((16, 20), bool)
    truth[3:8, 2:19] = True
    document = page([View("x.png", IMAGE, {"a": explanation, "b": EXPLANATION}, truth=truth)])
    table = view_of(document)
    cells = cells_of(table)
    assert np.array_equal(np.array(table["truth"])[cells] == 1, truth)
    assert table["areas"] == np.bincount(cells.ravel()).tolist()
    owner = np.array(table["classes"][0]["cells"])[cells]
    regions = dict.fromkeys(
        part for game in explanation.games for part in (game.region, *game.children)
    )
    for number, region in enumerate(regions):
        inside = mask((region,), (16, 20))
        assert table["classes"][0]["sizes"][number] == inside.sum()
        if (owner == number).any():
            assert np.array_equal(owner == number, inside)
    for cell, box in enumerate(np.reshape(table["boxes"], (-1, 4)).tolist()):
        rows, columns = np.nonzero(cells == cell)
        assert box == [rows.min(), columns.min(), rows.max() + 1, columns.max() + 1]


def test_a_large_image_adds_little_but_itself():
    side = 4000
    image = np.zeros((1, side, side), np.float32)
    explanation = enlarged(spotted(400), side // 400)
    assert sum(len(game.children) for game in explanation.games) > 500
    document = page([View("large.png", image, {"spots": explanation})])
    beyond = len(document) - len(block(document, f"{home_of(document)}/0-0-0"))
    assert beyond < 3e6


def test_values_that_are_not_known_are_null():
    image = np.ones((1, 8, 8))
    drawn = hshap.Explainer(
        lambda batch: batch.sum(axis=(1, 2, 3)),
        baseline=hshap.References(np.random.default_rng(0).random((3, 1, 8, 8))),
        partition=hshap.Dyadic(4),
    ).explain(image, 0)
    read = drawn.at(min_size=8)
    game = view_of(page([View("x.png", image, {"a": read})]))["classes"][0]["games"][0]
    assert game["errors"] == [None]


def test_the_file_is_whole_or_as_it_was(tmp_path):
    path = tmp_path / "page.html"
    assert write_page(path, [VIEW]) == path
    before = path.read_bytes()
    assert before.decode() == page([VIEW])
    with pytest.raises(ArgumentError):
        write_page(path, [])
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_whole_or_as_it_was(tmp_path):
    path = tmp_path / "index.html"
    write_page(path, (replace(VIEW, name=name) for name in "ab"), form="folder")
    folder = tmp_path / "index_files"
    before = {file: file.read_bytes() for file in folder.rglob("*.js")}
    assert len(before) == 4

    def failing():
        yield VIEW
        message = "no more"
        raise RuntimeError(message)

    with pytest.raises(RuntimeError):
        write_page(path, failing(), form="folder")
    assert {file: file.read_bytes() for file in folder.rglob("*.js")} == before
    write_page(path, [VIEW], form="folder")
    assert len(list(folder.rglob("*.js"))) == 2
    assert {file.name for file in tmp_path.iterdir()} == {"index.html", "index_files"}


def test_a_folder_of_others_is_not_touched(tmp_path):
    (tmp_path / "x_files").mkdir()
    (tmp_path / "x_files" / "thesis.txt").write_text("mine")
    with pytest.raises(ArgumentError, match="not the folder of a page"):
        write_page(tmp_path / "x.html", [VIEW], form="folder")
    assert [path.name for path in tmp_path.rglob("*")] == ["x_files", "thesis.txt"]


def test_a_large_page_has_a_folder_and_a_small_one_has_none(tmp_path):
    side = 3000
    noise = np.random.default_rng(0).integers(0, 256, (3, side, side), dtype=np.uint8)
    large = View("large.png", noise, {"spots": enlarged(spotted(300), side // 300)})
    write_page(tmp_path / "small.html", [VIEW])
    write_page(tmp_path / "large.html", [VIEW, large, VIEW])
    assert {path.name for path in tmp_path.iterdir()} == {
        "small.html", "large.html", "large_files",
    }  # fmt: skip
    text = (tmp_path / "large.html").read_text()
    assert len(list((tmp_path / "large_files").rglob("view.js"))) == 2  # two views are the same
    tiles_of = {path.stem for path in (tmp_path / "large_files" / home_of(text, 1)).iterdir()}
    assert len(tiles_of - {"view", "thumb"}) == 9 + 4 + 1
    index = json.loads(block(text, "data"))
    assert index["folder"] == "large_files"
    assert [view["name"] for view in index["views"]] == ["x.png", "large.png", "x.png"]


def test_parts_are_named_by_their_content():
    other = IMAGE.copy()
    other[0, 0, 0] += 0.5
    views = [
        VIEW,
        replace(VIEW, name="y.png"),
        replace(VIEW, image=other),
        replace(VIEW, pixel_size=2.0),
        View("x.png", IMAGE, {"marked": EXPLANATION.at(min_size=4)}),
    ]
    homes = [home_of(page([view, VIEW])) for view in views]
    assert len(set(homes)) == len(views)
    again = View("x.png", IMAGE.copy(), {"marked": EXPLANATION})
    assert home_of(page([views[1], again]), 1) == homes[0]  # on another page, at another place


def test_colours_that_are_grey_are_shown_as_grey_values():
    plane = np.arange(12, dtype=np.uint16).reshape(3, 4) * 300
    made = shown(np.stack([plane] * 3), 2, (0, 1000))
    assert not made.is_colour
    assert np.array_equal(made.pixels, plane)
    assert made.window == (0, 1000)
    assert shown(np.stack([plane, plane, plane + 1]), 2).is_colour


@pytest.mark.parametrize(
    ("values", "low", "step"),
    [
        (np.array([[-5, 7], [1, 2]], np.int16), -5, 1),
        (np.array([[-0.5, 0.5], [0.25, 65534.5]]), -0.5, 1),  # a step of 1, but no whole numbers
        (np.array([[0, 2**20], [1, 2]]), 0, 2**20 / 65535),
    ],
)
def test_grey_values_stand_for_the_numbers_of_the_image(values, low, step):
    made = shown(values, 2)
    assert (made.low, made.step) == (low, step)
    assert np.abs(made.low + made.step * made.pixels - values).max() <= made.step / 2


def test_scripts_beside_the_page_hold_data_alone(tmp_path):
    view = View(HOSTILE, IMAGE, {HOSTILE: EXPLANATION})
    write_page(tmp_path / "x.html", [view], form="folder")
    for file in (tmp_path / "x_files").rglob("*.js"):
        for line in file.read_text().splitlines():
            name, text = re.fullmatch(r'hshapPart\(("[^"]*"), (".*")\);', line).groups()
            assert json.loads(name).startswith(f"{file.parent.name}/")
            assert not set("<>&\u2028\u2029") & set(text)
            json.loads(text)


def test_the_map_of_cells_of_a_large_grid_is_small():
    table, _ = tabulate("x", {"a": enlarged(spotted(400), 50)}, None)
    assert table["grid"] == [20_000, 20_000]
    assert len(table["runs"]) < 20_000
    assert sum(table["areas"]) == 20_000**2


@pytest.mark.parametrize("shape", [(5, 7), (1024, 1024), (1025, 3), (2100, 1500)])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_tiles_put_together_are_the_image(shape, dtype):
    most = np.iinfo(dtype).max
    plane = np.random.default_rng(0).integers(0, most, shape, dtype=dtype, endpoint=True)
    picture = shown(plane, 2)
    sizes = levels_of(picture)
    assert sizes[0] == list(shape)
    assert max(sizes[-1]) <= TILE
    found = np.zeros(shape, dtype)
    for name, data in tiles(picture):
        level, row, column = map(int, name.split("-"))
        if level:
            continue
        raw = np.frombuffer(zlib.decompress(data), np.uint8)
        part = found[row * TILE :, column * TILE :][:TILE, :TILE]
        if dtype == np.uint16:
            high, low = raw.reshape(2, *part.shape).astype(np.uint16)
            raw = high * np.uint16(256) + low
        part[:] = np.cumsum(raw.reshape(part.shape), axis=1, dtype=dtype)
    assert np.array_equal(found, plane)


def test_what_is_given_stays_as_it_was():
    image = IMAGE.copy()
    image.flags.writeable = False
    truth = np.zeros((16, 20), bool)
    truth.flags.writeable = False
    page([View("x.png", image, {"marked": EXPLANATION}, truth=truth)])
    assert np.array_equal(image, IMAGE)


MISTAKES = {
    "form": (lambda: write_page("x.html", [VIEW], form="zip"), "form is 'zip'", "'folder'"),
    "pixel size": (
        lambda: View("x", IMAGE, {"a": EXPLANATION}, pixel_size=-1),
        "pixel_size is -1",
        "0.5",
    ),
    "pixel sizes": (
        lambda: View("x", IMAGE, {"a": EXPLANATION}, pixel_size=(1, 2, 3)),
        "pixel_size is (1, 2, 3)",
        "2 of them",
    ),
    "unit": (lambda: View("x", IMAGE, {"a": EXPLANATION}, unit=3), "unit is 3", '"mm"'),
    "window": (
        lambda: View("x", IMAGE, {"a": EXPLANATION}, window=(1, 1)),
        "window is (1, 1)",
        "(0, 4095)",
    ),
    "not the original": (
        lambda: View("x", IMAGE, {"a": PLACED}, original=True),
        "original is True, but the image has (16, 20) pixels, and not (32, 40)",
        "leave original out",
    ),
    "two images": (
        lambda: View("x", IMAGE, {"a": EXPLANATION, "b": PLACED}),
        "explanations['b'] has another place",
        "one image",
    ),
    "frame": (lambda: EXPLANATION.view(height=3), "height", "200"),
    "no views": (lambda: page([]), "views", "at least one View"),
    "a bare view": (lambda: page(VIEW), "views", "[View(...)]"),
    "not a view": (lambda: page([VIEW, "x"]), "views[1] is 'x'", "pass a View"),
    "title": (lambda: page([VIEW], title=3), "title is 3", "text"),
    "name": (lambda: View(3, IMAGE, {"a": EXPLANATION}), "name is 3", "file name"),
    "no explanation": (lambda: View("x", IMAGE, {}), "explanations is {}", "dictionary"),
    "bare explanation": (lambda: View("x", IMAGE, EXPLANATION), "explanations", "dictionary"),
    "not an explanation": (lambda: View("x", IMAGE, {"a": 3}), "explanations['a'] is 3", "explain"),
    "class name": (lambda: View("x", IMAGE, {1: EXPLANATION}), "class name", "text"),
    "other size": (
        lambda: View("x", IMAGE[:, :9], {"a": EXPLANATION}),
        "(1, 9, 20)",
        "(channels, 16, 20)",
    ),
    "channels last": (
        lambda: View("x", np.zeros((16, 20, 3)), {"a": EXPLANATION}),
        "(16, 20, 3)",
        "(channels, 16, 20)",
    ),
    "signal": (
        lambda: View("x", np.zeros((1, 8)), {"a": explained(image=marked((8,), [3]))}),
        "(8,)",
        "explanation.plot",
    ),
    "text as image": (
        lambda: View("x", np.full((16, 20), "a"), {"a": EXPLANATION}),
        "<U1",
        "an array of floats",
    ),
    "NaN": (
        lambda: View("x", np.full((16, 20), np.nan), {"a": EXPLANATION}),
        "image",
        "nan_to_num",
    ),
    "truth of another size": (
        lambda: View("x", IMAGE, {"a": EXPLANATION}, truth=np.zeros((3, 3), bool)),
        "truth is bool of shape (3, 3)",
        "(16, 20)",
    ),
    "truth in numbers": (
        lambda: View("x", IMAGE, {"a": EXPLANATION}, truth=np.zeros((16, 20))),
        "float64",
        "mask > 0",
    ),
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
