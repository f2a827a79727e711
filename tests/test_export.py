"""What goes out comes back: each format is read by a library that did not write it."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from colours import count_colours
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from oracle import any_marked, marked

from hshap import (
    ArgumentError,
    Bisection,
    Box,
    Constant,
    DepthFirst,
    Dyadic,
    Explainer,
    MissingExtraError,
    Pixels,
    References,
    Shifted,
    Superpixels,
    export,
)
from hshap.partitions.outlines import polygons, trace
from hshap.partitions.regions import mask

# pycocotools speaks to NumPy as it was before 2.0.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def explain(image, partition=None, search=None, model=any_marked, baseline=None):
    explainer = Explainer(
        model,
        baseline=baseline or Constant(0.0),
        partition=partition or Dyadic(2),
        search=search or DepthFirst(),
    )
    return explainer.explain(image, target=0)


def points(grid, count, seed=0):
    return marked(grid, np.random.default_rng(seed).choice(np.prod(grid), count, replace=False))


def segments(labels):
    """Explain with one superpixel for each label, where every third one is marked."""
    image = (labels[None] % 3 == 1).astype(np.float32)
    return explain(image, Superpixels.from_labels(labels))


def ring_and_crumbs():
    """Label a ring around a hole, with a piece in the hole, and two pieces that touch in a corner.

    The ring's hole reaches its border in a corner, so that outer and inner rings touch.
    """
    labels = np.zeros((9, 12), int)
    labels[1:7, 1:7] = 1
    labels[2:6, 2:6] = 0
    labels[5, 5], labels[6, 6] = 1, 0
    labels[3, 3] = 1
    labels[1, 9], labels[2, 10] = 4, 4
    labels[8, 11] = 7
    return labels


CASES = {
    "boxes": lambda: explain(points((13, 17), 4)),
    "rolled": lambda: explain(marked((13, 17), [0, 110, 220]), Shifted(Dyadic(3), offset=(5, 7))),
    "free": lambda: segments(ring_and_crumbs()),
    "whole": lambda: explain(points((6, 5), 1), Dyadic(9)),
    "empty": lambda: explain(marked((13, 17), [])),
}


@pytest.fixture(params=CASES)
def found(request):
    return CASES[request.param]()


def filled(polygon_list, grid):
    """Return the pixels whose centres are in the polygons, according to shapely."""
    shapely = pytest.importorskip("shapely")
    shape = shapely.MultiPolygon([shapely.Polygon(shell, holes) for shell, holes in polygon_list])
    assert shape.is_valid, shapely.is_valid_reason(shape)
    rows, columns = np.mgrid[: grid[0], : grid[1]] + 0.5
    return shapely.contains_xy(shape, columns, rows)


masks = arrays(bool, array_shapes(min_dims=2, max_dims=2, max_side=9), elements=st.booleans())


@given(masks)
@example(np.array([[1, 1, 1], [1, 0, 1], [1, 1, 0]], bool))
@example(np.array([[1, 1, 1, 1], [1, 0, 1, 1], [1, 1, 0, 1], [1, 1, 1, 1]], bool))
@example(np.pad(np.pad(np.pad(np.ones((1, 1), bool), 1), 1, constant_values=True), 1))
def test_traced_polygons_hold_exactly_the_pixels_and_are_valid(inside):
    shapely = pytest.importorskip("shapely")
    label = pytest.importorskip("scipy.ndimage").label
    traced = trace(inside)
    assert np.array_equal(filled(traced, inside.shape), inside)
    assert sum(shapely.Polygon(*polygon).area for polygon in traced) == inside.sum()
    assert len(traced) == label(inside)[1]
    for polygon in traced:
        assert shapely.LinearRing(polygon.shell).is_ccw
        assert not any(shapely.LinearRing(hole).is_ccw for hole in polygon.holes)


@given(masks)
def test_polygons_have_corners_only_where_they_turn(inside):
    for polygon in trace(inside):
        for ring in (polygon.shell, *polygon.holes):
            sides = np.diff([*ring, ring[0]], axis=0)
            assert ((sides != 0).sum(axis=1) == 1).all()
            axis = np.abs(sides).argmax(axis=1)
            assert (axis != np.roll(axis, 1)).all()


@given(masks.filter(np.any), st.integers(0, 5), st.integers(0, 5))
def test_a_free_region_is_traced_where_it_is_in_the_image(inside, down, right):
    grid = (inside.shape[0] + 5, inside.shape[1] + 5)
    whole = np.zeros(grid, bool)
    whole[down : down + inside.shape[0], right : right + inside.shape[1]] = inside
    region = Pixels(np.flatnonzero(whole), grid)
    assert np.array_equal(filled(polygons(region, grid), grid), whole)


def test_a_region_of_another_make_is_traced_too():
    class Column:
        index = (slice(0, 4), np.array([1, 3]))
        size = 8

        def split(self):
            return ()

    region = Column()
    assert np.array_equal(filled(polygons(region, (4, 5)), (4, 5)), mask((region,), (4, 5)))


def read_coco(tmp_path, document):
    coco = pytest.importorskip("pycocotools.coco")
    return coco.COCO(str(export.write_json(tmp_path / "coco.json", document)))


def test_pycocotools_reads_back_every_leaf_to_the_pixel(found, tmp_path, capsys):
    read = read_coco(tmp_path, export.coco({"a/b c.png": found}, category="cross"))
    assert read.loadImgs([1])[0] == {
        "id": 1,
        "file_name": "a/b c.png",
        "width": found.grid[1],
        "height": found.grid[0],
    }
    assert [each["name"] for each in read.loadCats(read.getCatIds())] == ["cross"]
    seen = [np.zeros(found.grid, bool) for _ in found.leaves]
    for each in read.loadAnns(read.getAnnIds(imgIds=[1])):
        pixels = read.annToMask(each).astype(bool)
        assert pixels.sum() == each["area"]
        rows, columns = np.nonzero(pixels)
        left, top, width, height = each["bbox"]
        assert (columns.min(), columns.max() + 1) == (left, left + width)
        assert (rows.min(), rows.max() + 1) == (top, top + height)
        assert each["score"] == found.coefficients()[pixels][0]
        seen[each["leaf"]] |= pixels
    for pixels, leaf in zip(seen, found.leaves, strict=True):
        assert np.array_equal(pixels, mask((leaf,), found.grid))


@given(masks.filter(np.any))
def test_pycocotools_fills_any_form_to_the_pixel(inside):
    pytest.importorskip("pycocotools")
    from pycocotools import mask as fill

    found = explain(inside[None].astype(float), Superpixels.from_labels(inside.astype(int)))
    (annotation,) = export.coco({"x": found})["annotations"]
    segmentation = annotation["segmentation"]
    runs = fill.frPyObjects(segmentation, *inside.shape)
    runs = fill.merge(runs) if isinstance(segmentation, list) else runs
    assert np.array_equal(fill.decode(runs), inside)


def test_several_images_are_one_coco_document(tmp_path, capsys):
    several = {name: make() for name, make in CASES.items()}
    read = read_coco(tmp_path, export.coco(several))
    assert [each["file_name"] for each in read.loadImgs(read.getImgIds())] == list(several)
    for number, explanation in enumerate(several.values(), start=1):
        leaves = {each["leaf"] for each in read.loadAnns(read.getAnnIds(imgIds=[number]))}
        assert leaves == set(range(len(explanation.leaves)))
    assert len(set(read.getAnnIds())) == len(read.getAnnIds())


def test_coco_annotations_are_also_results_that_can_be_scored(tmp_path, capsys):
    cocoeval = pytest.importorskip("pycocotools.cocoeval")
    document = export.coco({"a.png": CASES["boxes"](), "b.png": CASES["free"]()})
    truth = read_coco(tmp_path, document)
    scored = cocoeval.COCOeval(truth, truth.loadRes(document["annotations"]), "segm")
    scored.evaluate()
    scored.accumulate()
    scored.summarize()
    assert scored.stats[0] == 1.0


def test_an_empty_coco_document_is_valid(tmp_path, capsys):
    read = read_coco(tmp_path, export.coco({}))
    assert (read.getImgIds(), read.getAnnIds(), read.getCatIds()) == ([], [], [1])


def test_shapely_reads_back_every_feature_to_the_pixel(found, tmp_path):
    shapely = pytest.importorskip("shapely.geometry")
    path = export.write_json(tmp_path / "x.geojson", export.geojson(found, name="cross"))
    document = json.loads(path.read_text())
    assert document["type"] == "FeatureCollection"
    rows, columns = np.mgrid[: found.grid[0], : found.grid[1]] + 0.5
    contains = pytest.importorskip("shapely").contains_xy
    for feature, leaf in zip(document["features"], found.leaves, strict=True):
        shape = shapely.shape(feature["geometry"])
        assert shape.is_valid
        assert shape.area == leaf.area
        assert np.array_equal(contains(shape, columns, rows), mask((leaf,), found.grid))


def test_features_are_what_qupath_reads(found):
    for detections, kind in ((False, "annotation"), (True, "detection")):
        for feature in export.geojson(found, name="cross", detections=detections)["features"]:
            assert feature["type"] == "Feature"
            assert feature["geometry"]["type"] in {"Polygon", "MultiPolygon"}
            properties = feature["properties"]
            assert properties["objectType"] == kind
            assert properties["classification"]["name"] == "cross"
            colour = properties["classification"]["color"]
            assert len(colour) == 3
            assert all(isinstance(part, int) and 0 <= part <= 255 for part in colour)
            assert all(
                isinstance(part, (int, float)) for part in properties["measurements"].values()
            )


def test_rings_are_closed_and_turn_as_the_standard_asks():
    shapely = pytest.importorskip("shapely.geometry")
    turns = []
    for feature in export.geojson(CASES["free"]())["features"]:
        geometry = feature["geometry"]
        parts = geometry["coordinates"]
        for shell, *holes in parts if geometry["type"] == "MultiPolygon" else [parts]:
            assert all(ring[0] == ring[-1] for ring in (shell, *holes))
            turns.append(shapely.LinearRing(shell).is_ccw)
            turns += [not shapely.LinearRing(hole).is_ccw for hole in holes]
    assert len(turns) > 4
    assert all(turns)


def test_a_box_over_the_border_becomes_pieces_that_do_not_span_the_image():
    found = explain(marked((16, 16), [0]), Shifted(Dyadic(4), offset=(2, 2)))
    (leaf,) = found.leaves
    assert not isinstance(leaf, Box)
    (feature,) = export.geojson(found)["features"]
    assert feature["geometry"]["type"] == "MultiPolygon"
    assert len(feature["geometry"]["coordinates"]) == 4
    boxes = [each["bbox"] for each in export.coco({"x": found})["annotations"]]
    assert sorted(boxes) == [[0, 0, 2, 2], [0, 14, 2, 2], [14, 0, 2, 2], [14, 14, 2, 2]]


def test_measurements_tell_the_maps():
    found = explain(points((16, 16), 3), model=lambda batch: batch.sum((1, 2, 3)))
    told = [each["properties"]["measurements"] for each in export.geojson(found)["features"]]
    for leaf, figures in zip(found.leaves, told, strict=True):
        assert figures["coefficient"] == found.coefficients()[leaf.index].flat[0]
        assert np.isclose(figures["attribution"], found.attribution()[leaf.index].sum())
        assert figures["pixels"] == leaf.area
        assert "standard error" not in figures


def test_standard_errors_are_told_where_they_are_known(rng):
    image = rng.random((1, 4, 4))
    for partition in (Dyadic(2), Dyadic(9)):
        found = explain(
            image,
            partition,
            model=lambda batch: batch.mean((1, 2, 3)),
            baseline=References(rng.random((3, 1, 4, 4)) / 2),
        )
        assert found.leaves
        for leaf, feature in zip(found.leaves, export.geojson(found)["features"], strict=True):
            error = found.errors()[leaf.index].flat[0]
            told = feature["properties"]["measurements"].get("standard error")
            assert told == (error if np.isfinite(error) and error else None)


@pytest.mark.parametrize("what", ["coco", "geojson"])
@pytest.mark.parametrize("grid", [(30,), (4, 5, 6)])
def test_formats_for_pictures_refuse_signals_and_volumes(what, grid):
    found = explain(points(grid, 2), Bisection(2))
    given_ = {"x.png": found} if what == "coco" else found
    with pytest.raises(
        ArgumentError, match=rf"{what} holds pictures, .* use table\(\) or dataarray"
    ):
        getattr(export, what)(given_)


def test_a_png_says_how_to_get_the_values_back(tmp_path, rng):
    pil = pytest.importorskip("PIL.Image")
    values = rng.random((7, 11)) * 3
    values[0, 0], values[0, 1] = np.nan, -2.0
    with pil.open(export.write_png(tmp_path / "x.png", values)) as read:
        assert (read.mode, read.size) == ("L", (11, 7))
        step = float(read.text["hshap:step"])
        back = np.asarray(read) * step
    kept = np.nan_to_num(values).clip(0)
    assert np.abs(back - kept).max() <= step / 2 + 1e-12
    assert back.max() == np.nanmax(values)


def test_an_empty_map_is_a_black_png(tmp_path):
    pil = pytest.importorskip("PIL.Image")
    with pil.open(export.write_png(tmp_path / "x.png", np.zeros((3, 4)))) as read:
        assert not np.asarray(read).any()
        assert float(read.text["hshap:step"]) == 0.0


def test_a_tiff_keeps_the_values(tmp_path, rng):
    tifffile = pytest.importorskip("tifffile")
    pil = pytest.importorskip("PIL.Image")
    values = rng.normal(size=(7, 11))
    values[2, 3] = np.nan
    path = export.write_tiff(tmp_path / "x.tiff", values)
    for back in (tifffile.imread(path), np.asarray(pil.open(path))):
        assert back.dtype == np.float32
        assert np.array_equal(back, values.astype(np.float32), equal_nan=True)


def test_a_volume_is_a_tiff_of_pages_and_no_png(tmp_path):
    tifffile = pytest.importorskip("tifffile")
    volume = np.random.default_rng(0).normal(size=(3, 7, 11))
    path = export.write_tiff(tmp_path / "x.tiff", volume)
    with tifffile.TiffFile(path) as file:
        assert len(file.pages) == 3
        assert np.array_equal(file.asarray(), volume.astype(np.float32))
    with pytest.raises(ArgumentError, match=r"shape \(3, 7, 11\) .* values\[i\] for a volume"):
        export.write_png(tmp_path / "x.png", volume)


@pytest.mark.parametrize("write", [export.write_png, export.write_tiff])
@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros(5), r"holds a map with two axes, but values is ndarray of shape \(5,\)"),
        (np.zeros((2, 3, 4, 5)), r"shape \(2, 3, 4, 5\) of type float64; .* values\[i\] for a vol"),
        (np.zeros((0, 4)), r"shape \(0, 4\)"),
        (np.array([["a"]]), "of type <U1"),
        (np.array([[np.inf]]), "values has 1 infinite entries; replace them first"),
    ],
)
def test_maps_that_are_no_pictures_are_refused(write, values, message, tmp_path):
    with pytest.raises(ArgumentError, match=message):
        write(tmp_path / "x", values)
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_finished_leaves_the_old_one(tmp_path):
    path = tmp_path / "x.json"
    path.write_text("old")
    with pytest.raises(ArgumentError, match="document cannot be written as JSON"):
        export.write_json(path, {"x": float("nan")})
    with pytest.raises(ArgumentError, match="document cannot be written as JSON"):
        export.write_json(path, {"x": object()})
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    assert json.loads(export.write_json(path, {"x": "é"}).read_text()) == {"x": "é"}


def test_a_table_has_a_row_for_each_leaf(found):
    pytest.importorskip("pandas")
    rows = export.table(found)
    assert len(rows) == len(found.leaves)
    assert rows["size"].tolist() == [leaf.area for leaf in found.leaves]
    assert rows["leaf"].all()
    assert np.isclose(
        rows["attribution"].sum(), found.score - found.baseline_score - found.residual
    )
    assert rows.dtypes.astype(str).tolist() == [
        *("int64", "int64", "bool", "int64", "float64", "float64", "float64"),
        *["int64"] * 4,
    ]


def test_a_table_of_every_region_is_the_tree(found):
    pytest.importorskip("pandas")
    rows = export.table(found, every=True)
    assert rows["leaf"].sum() == len(found.leaves)
    assert rows.index.tolist() == list(range(len(rows)))
    assert rows["parent"].tolist()[0] == -1
    inner = rows.iloc[1:]
    assert (rows.loc[inner["parent"], "depth"].to_numpy() + 1 == inner["depth"].to_numpy()).all()
    sizes = inner.groupby("parent")["size"].sum()
    assert (rows.loc[sizes.index, "size"] == sizes).all()
    coefficients = [phi for game in found.games for phi in game.coefficients]
    if len(rows) > 1:
        assert inner["coefficient"].tolist() == coefficients


@pytest.mark.parametrize("grid", [(30,), (5, 6), (4, 5, 6), (2, 3, 2, 3)])
def test_tables_and_arrays_take_any_number_of_axes(grid):
    pytest.importorskip("pandas")
    pytest.importorskip("xarray")
    found = explain(points(grid, 2), Bisection(1))
    rows, array = export.table(found), export.dataarray(found)
    names = {1: "x", 2: "yx", 3: "zyx"}.get(len(grid), [f"axis_{i}" for i in range(len(grid))])
    assert array.dims == tuple(names)
    assert np.array_equal(array, found.coefficients())
    for (_, row), leaf in zip(rows.iterrows(), found.leaves, strict=True):
        assert tuple(row[f"{name}_start"] for name in names) == leaf.start
        assert tuple(row[f"{name}_stop"] for name in names) == leaf.stop
        assert row["coefficient"] == float(array.isel(dict(zip(names, leaf.start, strict=True))))


def test_an_array_takes_another_map_and_refuses_another_shape(found):
    pytest.importorskip("xarray")
    array = export.dataarray(found, heat=found.saliency())
    assert np.array_equal(array, found.saliency())
    assert array.attrs["score"] == found.score
    assert json.loads(array.attrs["settings"]) == json.loads(json.dumps(dict(found.settings)))
    with pytest.raises(ArgumentError, match=r"heat has shape \(3, 3\); pass a map of shape"):
        export.dataarray(found, heat=np.zeros((3, 3)))


@pytest.mark.parametrize("channels", [1, 3])
def test_shap_values_add_up_to_the_score(channels, rng):
    pytest.importorskip("shap")
    image = rng.random((channels, 8, 8))
    found = explain(image, model=lambda batch: batch.mean((1, 2, 3)))
    values = export.shap_values(found, image)
    assert values.shape == (1, 8, 8, channels, 1)
    total = values.values.sum() + values.base_values.sum()
    assert np.isclose(total, found.score - found.residual)
    assert np.array_equal(np.moveaxis(values.data[0], -1, 0), image)
    with pytest.raises(
        ArgumentError, match=r"image has shape \(1, 3, 3\), but the explanation has"
    ):
        export.shap_values(found, np.zeros((1, 3, 3)))


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("channels", [1, 3])
def test_shap_plots_our_values(channels, rng, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "Agg")
    shap = pytest.importorskip("shap")
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    image = np.full((channels, 20, 20), 0.5)
    image[0, 4, 5] = 1.0
    found = explain(image, model=lambda batch: batch[:, 0].max((1, 2)), baseline=Constant(0.5))
    try:
        shap.plots.image(export.shap_values(found, image), show=False)
        figure = pyplot.gcf()
        assert figure.axes[1].get_title() == "0"
        shown = np.asarray(figure.axes[1].get_images()[1].get_array())
        assert np.allclose(shown, found.attribution())
        figure.canvas.draw()
        pixels = np.asarray(figure.canvas.buffer_rgba())[..., :3]
        assert count_colours(pixels) > 20
    finally:
        pyplot.close("all")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (export.coco, "explanations is .*; pass a dictionary of file names"),
        (
            lambda found: export.coco({"x.png": 3}),
            "explanation is 3; pass the result of Explainer.explain",
        ),
        (lambda found: export.coco({}, category=" "), "category must be a name, got ' '"),
        (lambda found: export.geojson(found, name=7), "name must be a name, got 7"),
        (lambda found: export.geojson(found, detections=1), "detections must be True or False"),
        (lambda found: export.table(found, every="all"), "every must be True or False, got 'all'"),
        (lambda found: export.table([found]), r"explanation is \[<Explanation"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(ArgumentError, match=message):
        call(CASES["boxes"]())


@pytest.mark.parametrize(
    ("module", "call", "fix"),
    [
        ("pandas", export.table, "pip install pandas"),
        ("xarray", export.dataarray, "pip install xarray"),
        ("shap", lambda found: export.shap_values(found, np.zeros((1, 8, 8))), "pip install shap"),
        (
            "tifffile",
            lambda found: export.write_tiff("x.tiff", found.saliency()),
            r"pip install tifffile",
        ),
    ],
)
def test_a_library_that_is_not_there_is_named(module, call, fix, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=f"needs {module}: {fix}"):
        call(explain(points((8, 8), 1)))
