"""The page as text: what it holds, how large it is, and that nothing in it can become markup."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import zlib

import numpy as np
import pytest
from oracle import any_marked, marked

import hshap
from hshap import ArgumentError
from hshap._util.raster import png
from hshap._util.visible import visible
from hshap.export.page import View, page, write_page
from hshap.export.page.document import as_json
from hshap.export.page.picture import to_bytes
from hshap.partitions.regions import mask

IMAGE = marked((16, 20), [5, 200])
HOSTILE = "</script><script>alert(1)</script><!--\u2028\u2029&\"'"


def explained(partition=None, image=IMAGE):
    return hshap.Explainer(
        any_marked, baseline=hshap.Constant(0.0), partition=partition or hshap.Dyadic(2)
    ).explain(image, 0)


EXPLANATION = explained()
VIEW = View("x.png", IMAGE, {"marked": EXPLANATION})


def block(text, name):
    return re.search(f'<script type="[a-z/]+" id="{name}">([^<]*)</script>', text)[1]


def view_of(text, number=0):
    return json.loads(block(text, "data"))["views"][number]


def cells_of(text, number=0):
    raw = zlib.decompress(base64.b64decode(block(text, f"runs-{number}")))
    lengths, cells = np.frombuffer(raw, "<u4").reshape(2, -1)
    table = view_of(text, number)
    return np.repeat(cells, lengths).reshape(table["height"], table["width"])


@pytest.mark.parametrize("text", [HOSTILE, "\ud800 half a character", "{{data}} {{script}}"])
def test_names_are_data_wherever_they_stand(text):
    view = View(text, IMAGE, {text: EXPLANATION, f"{text} 2": EXPLANATION})
    document = page([view], title=text)
    document.encode()
    table = json.loads(block(document, "data"))
    shown = visible(text)
    assert table["title"] == table["views"][0]["name"] == shown
    assert [one["name"] for one in table["views"][0]["classes"]] == [shown, f"{shown} 2"]
    # The page's own: data, runs, image, code.
    assert document.count("<script") == 4
    assert document.lower().count("</script") == 4
    assert "<!--" not in block(document, "data")


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
    assert np.array_equal(read_png(base64.b64decode(block(document, "image-0"))), pixels)


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
    table, cells = view_of(document), cells_of(document)
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
    spots = np.random.default_rng(0).integers(0, side, (80, 2))
    image = np.zeros((1, side, side), np.float32)
    image[0, spots[:, 0], spots[:, 1]] = 1.0
    explanation = hshap.Explainer(
        lambda batch: batch[:, 0, spots[:, 0], spots[:, 1]].sum(axis=1),
        baseline=hshap.Constant(0.0),
        partition=hshap.Dyadic(200),
    ).explain(image, 0)
    assert sum(len(game.children) for game in explanation.games) > 500
    document = page([View("large.png", image, {"spots": explanation})])
    beyond = len(document) - len(block(document, "image-0"))
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


def test_what_is_given_stays_as_it_was():
    image = IMAGE.copy()
    image.flags.writeable = False
    truth = np.zeros((16, 20), bool)
    truth.flags.writeable = False
    page([View("x.png", image, {"marked": EXPLANATION}, truth=truth)])
    assert np.array_equal(image, IMAGE)


MISTAKES = {
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
        "bytes or floats",
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
