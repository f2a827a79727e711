"""Explaining by tiles equals the ordinary explanation of the pooled model, and merges at seams."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from browsers import canvas_pixels, drawn
from commands import fine, refused, run
from oracle import by_definition

import hshap
from hshap import (
    ArgumentError,
    Bags,
    Batched,
    Bisection,
    Blur,
    Constant,
    DepthFirst,
    Explainer,
    FormatError,
    References,
)
from hshap.export.page import View, large_views
from hshap.large import TiledExplanation, Tiles, explain_tiles

SIDE = 16


def scores(tiles):
    """Two outputs for each tile, neither linear nor monotone."""
    count, side = len(tiles), tiles.shape[-1]
    blocks = tiles.reshape(count, tiles.shape[1], 4, side // 4, 4, side // 4).max(axis=(1, 3, 5))
    ordered = np.sort(blocks.reshape(count, -1), axis=1)
    first = ordered[:, -1] + 0.3 * ordered[:, -2] - 0.1 * tiles.reshape(count, -1).mean(axis=1)
    return np.stack([first, -first], axis=1)


def cut(batch, side=SIDE):
    """All tiles of images `(n, channels, height, width)`, in a row for each image."""
    n, channels, height, width = batch.shape
    split = batch.reshape(n, channels, height // side, side, width // side, side)
    return split.transpose(0, 2, 4, 1, 3, 5).reshape(-1, channels, side, side)


def pooled(batch):
    """The model of the whole image: the best tile, for each output."""
    return scores(cut(batch)).reshape(len(batch), -1, 2).max(axis=1)


def spotted(size=(128, 128), seed=0, count=6):
    rng = np.random.default_rng(seed)
    image = np.zeros((1, *size), np.float32)
    for _ in range(count):
        y, x = rng.integers(0, size[0] - 3), rng.integers(0, size[1] - 3)
        image[0, y : y + 3, x : x + 3] = rng.uniform(0.5, 1)
    return image


def with_parts(model, baseline=0.0, search=None):
    return Explainer(
        model, Constant(baseline), Bisection(min_size=2), search or DepthFirst(tolerance=0.0)
    )


def tiled(model=scores, image=None, target=0, **options):
    """Explain the spotted image, or another, by tiles of 16 pixels."""
    explainer = model if isinstance(model, Explainer) else with_parts(model)
    return explain_tiles(
        explainer, spotted() if image is None else image, target, tiles=Tiles(SIDE, **options)
    )


def painted(found, view):
    """A map of the whole image from maps of the found tiles."""
    out = np.zeros(found.shape)
    for one in found.inside:
        out[tuple(map(slice, one.placement.start, one.placement.stop))] = view(one)
    return out


@pytest.mark.parametrize("target", [0, 1, lambda outputs: outputs[:, 0] ** 2], ids=["0", "1", "f"])
@pytest.mark.parametrize("baseline", [0.0, 0.2])
@pytest.mark.parametrize("seed", [0, 1])
def test_two_stages_equal_the_ordinary_explanation_of_the_pooled_model(target, baseline, seed):
    image = spotted(seed=seed)
    whole = with_parts(pooled, baseline).explain(image, target)
    found = explain_tiles(with_parts(scores, baseline), image, target, tiles=Tiles(SIDE))
    assert (found.score, found.baseline_score) == (whole.score, whole.baseline_score)
    assert np.array_equal(painted(found, lambda one: one.coefficients()), whole.coefficients())
    assert found.boxes() == whole.boxes()
    heat = found.attribution((0, 0), found.shape)
    assert heat == pytest.approx(whole.attribution())
    assert np.array_equal(heat[64:, 8:80], found.attribution((64, 8), (128, 80)))
    assert {tuple(g.values) for one in found.inside for g in one.games} <= {
        tuple(game.values) for game in whole.games
    }


def test_shares_of_tiles_are_shapley_values_if_the_or_rule_holds():
    def marked(tiles):
        return (tiles > 0.5).any(axis=(1, 2, 3)).astype(float)

    image = np.zeros((1, 3 * SIDE, 3 * SIDE), np.float32)
    for y, x in ((5, 5), (20, 40), (44, 2)):
        image[0, y, x] = 1.0
    found = tiled(marked, image)
    tiles = cut(image[None])
    expected = by_definition(
        lambda shown: float(max((marked(tiles[list(shown)])), default=0.0)), players=9
    )
    gained = found.score - found.baseline_score
    assert np.allclose(gained * found.tiles.saliency().ravel(), expected, atol=1e-12)


def test_the_game_over_tiles_is_that_of_bags():
    image = spotted()
    found = tiled(image=image)
    features = np.moveaxis(scores(cut(image[None])).reshape(8, 8, 2), -1, 0)
    hidden = np.broadcast_to(scores(np.zeros((1, 1, SIDE, SIDE)))[0][:, None, None], (2, 8, 8))
    same = lambda values: values
    game = Explainer(Bags(same, same, "max"), hshap.Fixed(hidden), Bisection(1), DepthFirst())
    bare = game.explain(features.astype(float), 0)
    assert bare.leaves == found.tiles.leaves
    for one, other in zip(bare.games, found.tiles.games, strict=True):
        assert np.array_equal(one.values, other.values)
    assert np.allclose(found.scores, scores(cut(image[None]))[:, 0].reshape(8, 8), atol=1e-7)


def test_a_mean_over_tiles_equals_the_ordinary_explanation():
    def embed(outputs):
        return np.concatenate([outputs, np.ones((len(outputs), 1))], axis=1)

    def head(bags):
        return bags[:, :-1] / bags[:, -1:]

    def mean(batch):
        return scores(cut(batch)).reshape(len(batch), -1, 2).mean(axis=1)

    image = spotted((64, 64), count=3)
    whole = with_parts(mean).explain(image, 0)
    bags = Bags(embed, head, "sum")
    found = tiled(image=image, bags=bags)
    assert np.allclose(painted(found, lambda one: one.coefficients()), whole.coefficients())
    assert found.boxes()[0].start == whole.boxes()[0].start


@pytest.mark.parametrize("size", [(100, 70), (17, 200), (5, 5)])
def test_tiles_beyond_the_border_show_the_baseline(size):
    padded = np.zeros((1, *(-(-side // SIDE) * SIDE for side in size)), np.float32)
    image = (
        spotted((size[0], size[1]), count=3) if min(size) > 5 else np.ones((1, 5, 5), np.float32)
    )
    padded[:, : size[0], : size[1]] = image
    small = tiled(image=image)
    large = tiled(image=padded)
    assert np.array_equal(small.scores, large.scores)
    assert small.shape == size
    assert all(b <= side for box in small.boxes() for b, side in zip(box.stop, size, strict=True))
    assert [box.start for box in small.boxes()] == [box.start for box in large.boxes()]


def test_a_baseline_that_follows_the_image_is_scored_for_each_tile():
    image = spotted()
    explainer = Explainer(scores, Blur(2.0), Bisection(min_size=4), DepthFirst(0.01))
    found = tiled(explainer, image)
    tiles = cut(image[None])
    hidden = scores(np.concatenate([Blur(2.0)(tile)(()) for tile in tiles]))[:, 0]
    assert found.baseline_score == pytest.approx(hidden.max())
    alone = [max(own, np.delete(hidden, n).max()) for n, own in enumerate(scores(tiles)[:, 0])]
    assert np.allclose(found.scores.ravel(), np.array(alone) - hidden.max(), atol=1e-6)


def test_every_tile_is_scored_once_for_all_targets():
    inputs = []

    def counted(tiles):
        inputs.append(len(tiles))
        return scores(tiles)

    explainer = with_parts(Batched(counted, batch_size=8))
    found, other = explain_tiles(explainer, spotted(), [0, 0], tiles=Tiles(SIDE))
    assert found.boxes() == other.boxes()
    assert (found.target, found.inside[0].class_index) == (0, 0)
    inside = sum(one.evaluations for one in found.inside)
    assert found.evaluations == 64 + 1 + inside
    assert found.evaluations <= sum(inputs) < 64 + 2 * inside + 20
    assert max(inputs) <= 9  # one more, to check that batches do not matter


def test_flat_tiles_are_skipped_and_reported():
    image = spotted()
    every = tiled(image=image)
    seen = []

    def watched(tiles):
        seen.append(len(tiles))
        return scores(tiles)

    tiles = Tiles(SIDE, background=0.1)
    some = explain_tiles(with_parts(watched), image, 0, tiles=tiles)
    flat = np.ptp(cut(image[None]).reshape(64, -1), axis=1).reshape(8, 8) <= 0.1
    assert np.array_equal(some.skipped, flat)
    assert f"{flat.sum()} skipped as background" in repr(some)
    assert some.boxes() == every.boxes()
    assert some.evaluations == every.evaluations - flat.sum()
    own = explain_tiles(
        with_parts(scores), image, 0, tiles=Tiles(SIDE, background=lambda tile: tile.max() < 0.1)
    )
    assert np.array_equal(own.skipped, flat)


def test_found_tiles_beyond_the_limit_are_counted_and_told():
    every = tiled()
    few = tiled(max_tiles=2)
    assert len(few.inside) == 2
    assert few.unexplained == len(every.inside) - 2 > 0
    assert any(one.kind == "unfinished" for one in few.concerns)
    strongest = sorted(every.scores.ravel())[::-1][:2]
    assert [few.scores.ravel()[one.position] for one in few.inside] == strongest


def squares(tiles):
    """1 for each tile that holds a whole bright square of 4 x 4 pixels with a dark rim."""
    bright = (tiles[:, 0] > 0.5).astype(float)
    windows = np.lib.stride_tricks.sliding_window_view(bright, (4, 4), axis=(1, 2))
    return windows.all(axis=(3, 4)).any(axis=(1, 2)).astype(float)


@pytest.mark.parametrize("place", [(12, 14), (14, 14), (3, 30), (13, 3)])
def test_an_object_on_a_border_is_found_once_and_whole_with_overlap(place):
    image = np.zeros((1, 64, 64), np.float32)
    image[0, place[0] : place[0] + 4, place[1] : place[1] + 4] = 1.0
    explainer = Explainer(squares, Constant(0.0), Bisection(min_size="auto"), DepthFirst(0.0))
    apart = tiled(explainer, image)
    assert not apart.boxes()  # each tile has a part of it alone
    found = tiled(explainer, image, overlap=6)
    (box,) = found.boxes()
    assert all(a <= b for a, b in zip(box.start, place, strict=True))
    assert all(b >= a + 4 for a, b in zip(place, box.stop, strict=True))
    features = hshap.export.geojson(found)["features"]
    covered = np.zeros((64, 64), int)
    for leaf in found.leaves:
        at = leaf.explanation.placement
        mask = np.zeros((SIDE, SIDE), int)
        mask[leaf.region.index] = 1
        covered += at.nearest(mask)
    assert len(features) == len(found.leaves)
    assert covered[place[0] : place[0] + 4, place[1] : place[1] + 4].min() >= 1


def test_findings_that_touch_across_a_border_are_one():
    image = np.full((1, 32, 32), 0.3, np.float32)
    image[0, 14:18, 8] = 1.0
    # Without a baseline, hidden pixels show the colour of the image.
    explainer = Explainer(hshap.demo.brightest, partition=Bisection(1))
    found = tiled(explainer, image)
    assert found.baseline_score == pytest.approx(0.3)
    assert [(box.start, box.stop) for box in found.boxes()] == [((14, 8), (18, 9))]
    assert len(found.boxes(merge=False)) == 2
    document = hshap.export.coco({"slide.tif": found})
    assert document["images"][0]["width"] == 32
    areas = [one["bbox"] for one in document["annotations"]]
    assert sorted(areas) == [[8, row, 1, 1] for row in range(14, 18)]
    features = hshap.export.geojson(found)["features"]
    corners = {tuple(one["geometry"]["coordinates"][0][0]) for one in features}
    assert (8, 14) in corners
    assert all(one["properties"]["measurements"]["attribution"] > 0 for one in features)


def test_a_coarser_level_gives_places_in_the_full_image(tmp_path):
    tifffile = pytest.importorskip("tifffile")
    pytest.importorskip("imagecodecs")
    pixels = np.zeros((128, 128), np.uint8)
    pixels[40:44, 80:84] = 255
    path = tmp_path / "a.tif"
    with tifffile.TiffWriter(path) as file:
        file.write(pixels, subifds=1, tile=(16, 16))
        file.write(pixels[::2, ::2], subfiletype=1, tile=(16, 16))
    explainer = Explainer(hshap.demo.brightest, Constant(0.0), Bisection(1))
    found = explain_tiles(explainer, path, 0, tiles=Tiles(SIDE, level=1))
    assert [(box.start, box.stop) for box in found.boxes()] == [((40, 80), (44, 84))]
    with pytest.raises(ArgumentError, match="has no such level"):
        explain_tiles(explainer, path, 0, tiles=Tiles(SIDE, level=2))


def test_saved_and_loaded_without_pickle(tmp_path):
    found = tiled(overlap=4)
    found.save(tmp_path / "found.npz")
    again = TiledExplanation.load(tmp_path / "found.npz")
    assert again.boxes() == found.boxes()
    assert repr(again) == repr(found)
    assert np.array_equal(again.scores, found.scores)
    assert hshap.export.geojson(again) == hshap.export.geojson(found)
    assert np.array_equal(again.attribution((0, 0), (50, 60)), found.attribution((0, 0), (50, 60)))
    with np.load(tmp_path / "found.npz", allow_pickle=False) as archive:
        assert set(archive) >= {"files", "tile_scores"}


def test_a_file_of_another_kind_or_a_damaged_one_is_refused(tmp_path):
    path = tmp_path / "found.npz"
    hshap.demo.example().save(path)
    with pytest.raises(FormatError, match=r"of version \d+, written by .*, but this hshap reads"):
        TiledExplanation.load(path)
    found = tiled()
    found.save(path)
    with pytest.raises(FormatError, match="is a 'hshap tiled explanation' of version 1"):
        hshap.Explanation.load(path)
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(40):
        damaged = bytearray(data)
        for place in rng.integers(0, len(data), 3):
            damaged[place] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        with suppress(FormatError):  # and nothing else
            TiledExplanation.load(path).boxes()
    moved = replace(found, inside=(replace(found.inside[0], position=63),))
    moved.save(path)
    with pytest.raises(FormatError, match="was not found by the game over tiles"):
        TiledExplanation.load(path)
    with pytest.raises(FormatError, match="max_bytes"):
        TiledExplanation.load(path, max_bytes=1000)


BAD = {
    "side": (lambda: Tiles(0), "side must be at least 1"),
    "overlap": (lambda: Tiles(16, overlap=9), "overlap=9 is more than half of side=16"),
    "bags": (lambda: Tiles(16, bags="max"), "bags is 'max'; pass Bags"),
    "prepare": (lambda: Tiles(16, prepare=3), "prepare is 3"),
    "background": (lambda: Tiles(16, background=-1), "background must be a finite number"),
    "tiles": (lambda: explain_tiles(with_parts(scores), spotted(), 0, tiles=16), "16; pass Tiles"),
    "image": (lambda: explain_tiles(with_parts(scores), 3, 0), "image is 3"),
    "prepared": (lambda: tiled(prepare=lambda p: p[:, ::2]), "prepare returned float32 of shape"),
    "draws": (
        lambda: tiled(Explainer(scores, References(np.zeros((2, 1, SIDE, SIDE))))),
        "draws 2 stand-ins",
    ),
    "baselines": (
        lambda: tiled(Explainer(scores, [Constant(0.0)])),
        "baseline is [Constant(value=0.0)]; pass one",
    ),
    "target": (lambda: tiled(target=5), "target=5 is out of range"),
    "region": (lambda: tiled().attribution((0, 0), (200, 1)), "is no region of up to"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_argument_is_told_in_one_line(case):
    call, said = BAD[case]
    with pytest.raises(ArgumentError) as error:
        call()
    assert said in str(error.value)
    assert "\n" not in str(error.value)


TILED_MODEL = """
def red(tiles):
    return (tiles[:, :1] - tiles[:, 1:].max(axis=1, keepdims=True)).max(axis=(2, 3))
"""


@pytest.fixture
def slide(tmp_path, monkeypatch):
    """A folder with a tiled TIFF file that has two red squares, and a module with a model."""
    tifffile = pytest.importorskip("tifffile")
    pytest.importorskip("imagecodecs")
    pixels = np.full((300, 200, 3), 220, np.uint8)
    for y, x in ((60, 30), (250, 126)):
        pixels[y : y + 8, x : x + 8] = (200, 30, 30)
    options = {"tile": (64, 64), "compression": "zlib", "photometric": "rgb"}
    tifffile.imwrite(tmp_path / "slide.tif", pixels, **options)
    (tmp_path / "tiled_models.py").write_text(TILED_MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


MODEL = ("--model", "tiled_models:red", "--target", "0", "--side", "64", "--min-size", "4")


def test_the_command_writes_a_page_explanations_and_geojson(slide):
    words = ("tiles", "slide.tif", *MODEL, "--partition", "bisection", "--out", "out")
    done = fine(*words, "--json")
    told = json.loads(done.stdout)
    (image,) = told["images"]
    (each,) = image["explanations"]
    places = [(box["start"], box["stop"]) for box in each["findings"]]
    assert sorted(places) == [([60, 28], [68, 40]), ([248, 124], [260, 136])]
    found = TiledExplanation.load(slide / "out" / each["explanation"])
    assert [list(box.start) for box in found.boxes()] == [start for start, _ in places]
    features = json.loads((slide / "out" / each["geojson"]).read_text())["features"]
    assert len(features) == len(found.leaves)
    assert "<!doctype html>" in (slide / "out" / "index.html").read_text()[:100]
    fine(*words)  # results are there already
    assert "slide.tif" in fine(*words, "--force").stdout


BAD_COMMANDS = {
    "level": (("slide.tif", *MODEL, "--level", "3"), 3, "has no such level"),
    "missing": (("none.tif", *MODEL), 3, "none.tif does not exist"),
    "other kind": (("tiled_models.py", *MODEL), 3, "region by region"),
    "overlap": (("slide.tif", *MODEL, "--overlap", "40"), 2, "overlap=40 is more than half"),
    "white": (("slide.tif", *MODEL, "--white", "100"), 3, "pass --white"),
}


@pytest.mark.parametrize("case", BAD_COMMANDS)
def test_the_command_refuses_bad_input_in_one_line(slide, case):
    words, code, said = BAD_COMMANDS[case]
    refused(run("tiles", *words, "--out", "out"), code, said)
    assert not (slide / "out").exists()


# The page of a large image


def page_of(folder, views):
    """Write a page, and return its tiles by name."""
    folder.mkdir()
    hshap.export.page.write_page(folder / "index.html", views, form="folder")
    return {file.name: file.read_bytes() for file in folder.rglob("*-*-*.js")}


@pytest.mark.parametrize("channels", [1, 3])
def test_a_page_of_a_large_image_has_the_tiles_of_the_ordinary_page(channels, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (channels, 1100, 1300), dtype=np.uint8)
    large = Explainer(lambda tiles: tiles[:, 0].mean((1, 2)) > 200, Constant(0.0), Bisection(64))
    found = explain_tiles(large, pixels, 0, tiles=Tiles(512))
    whole = Explainer(lambda batch: batch.mean((1, 2, 3)), Constant(0.0), Bisection(800))
    plain = whole.explain(pixels.astype(np.float32), 0)
    made = page_of(tmp_path / "large", large_views(pixels, {"none": found}))
    expected = page_of(tmp_path / "plain", [View("image", pixels, {"none": plain})])
    assert made.keys() == expected.keys()
    fine_tiles = [name for name in made if name.startswith("0-")]
    assert len(fine_tiles) == 4
    for name in fine_tiles if channels == 1 else ():  # colours are compressed with losses
        assert made[name].partition(b"(")[2][-2000:] == expected[name].partition(b"(")[2][-2000:]


def test_fine_tiles_are_written_around_findings_alone(tmp_path):
    pixels = np.zeros((1, 4200, 5000), np.uint8)
    pixels[0, 2100, 3100] = 255
    explainer = Explainer(hshap.demo.brightest, Constant(0.0), Bisection(64))
    found = explain_tiles(explainer, pixels, 0, tiles=Tiles(500))
    names = set(page_of(tmp_path / "page", large_views(pixels, {"bright": found})))
    around = {f"0-{row}-{column}.js" for row in (1, 2) for column in (2, 3)}
    assert {name for name in names if name.startswith("0-")} == around
    assert {f"1-{row}-{column}.js" for row in range(3) for column in range(3)} <= names
    with pytest.raises(ArgumentError, match="pass the image that was explained"):
        next(large_views(np.zeros((1, 5, 5), np.uint8), {"a": found}))
    with pytest.raises(ArgumentError, match="found is 3"):
        next(large_views(np.zeros((1, 5, 5), np.uint8), 3))


@pytest.mark.browser
def test_the_page_zooms_to_full_resolution_and_outlines_findings_inside_tiles(show):
    pixels = np.full((1, 4200, 5000), 100, np.uint8)
    pixels[0, 2096:2104, 3096:3104] = 255
    explainer = Explainer(hshap.demo.brightest, Constant(0.4), Bisection(min_size=8))
    found = explain_tiles(explainer, pixels, 0, tiles=Tiles(500))
    views = large_views(pixels, {"bright": found})
    tab = show(views, form="folder", address="#image=image")
    camera = tab.evaluate("hshap.state().camera")
    assert camera["scale"] < 0.5

    def painted_at(y, x):
        """Whether the overlay shows something within two pixels of the screen."""
        row = round((y - camera["y"]) * camera["scale"])
        column = round((x - camera["x"]) * camera["scale"])
        return canvas_pixels(tab, 1)[row - 2 : row + 3, column - 2 : column + 3, 3].any()

    # The tile reaches from 2000, 3000 to 2500, 3500; inside it, only the square is outlined.
    assert painted_at(2100, 3100)
    assert not painted_at(2350, 3350)
    tab.locator(".screen").first.focus()
    tab.keyboard.press("n")
    for _ in range(12):
        tab.keyboard.press("+")
    drawn(tab)
    assert tab.evaluate("hshap.state().camera")["scale"] > 1
    # Elsewhere there are no fine tiles, and the page asks for none.
    tab.evaluate("hshap.open(0)")
    for _ in range(12):
        tab.keyboard.press("+")
    drawn(tab)
