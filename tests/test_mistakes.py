"""A mistake in any argument gives one line that names the argument, its value and the fix."""

from __future__ import annotations

import copy
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from oracle import any_marked, marked

import hshap
from hshap import (
    ArgumentError,
    Batched,
    Bisection,
    Blur,
    BreadthFirst,
    Conditional,
    Constant,
    DepthFirst,
    Dyadic,
    Explainer,
    Fixed,
    GroupTesting,
    HshapError,
    Mean,
    References,
    Shifted,
    Similar,
    cycle_spin,
    models,
)
from hshap.errors import UnknownOptionError
from hshap.images import Scan

IMAGE = marked((32, 32), [5, 700])
COLOUR = np.zeros((3, 32, 32), np.float32)


def made(model=any_marked, **recipes):
    return Explainer(model, **{"baseline": Constant(0.0), "partition": Dyadic(8), **recipes})


def explain(image=IMAGE, target=0, *, model=any_marked, **recipes):
    return made(model, **recipes).explain(image, target)


def archive(dataset, out="no-such-folder", **options):
    return hshap.runs.explain_dataset(made(), dataset, out, target=0, **options)


def two_outputs(batch):
    return np.stack([any_marked(batch)] * 2, axis=1)


def returns_nothing(root, draws):
    yield [root]


def asks_for_nothing(root, draws):
    return
    yield


def skips_the_root(root, draws):
    yield list(root.split())


def with_value(value, where=(0, 3, 4)):
    image = IMAGE.copy()
    image[where] = value
    return image


def torch_net():
    torch = pytest.importorskip("torch")
    return torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()).eval()


def plain_model(**options):
    names = options.pop("names", ["red", "green", "blue"])
    made = models.Preparation(**options)
    return models.prepared(torch_net(), made, names=names)


def boxes_of(boxes):
    return {"boxes": boxes, "scores": [1.0], "labels": [0]}


def three_scores(batch):
    return np.repeat(batch.max(axis=(1, 2)), 3, axis=1)[:, :3]


def found_nothing(batch):
    return [{"boxes": [], "scores": [], "labels": []}] * len(batch)


def processor(**fields):
    usual = {"do_normalize": True, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    return SimpleNamespace(**{**usual, **fields})


# The argument that the message names, the value it shows and the fix it gives; what is done.
MISTAKES = [
    ("image | (32,) | image[None]", lambda: explain(IMAGE[0, 0])),
    ("image | () | image[None]", lambda: explain(np.float32(1))),
    ("image | (32, 32, 3) | numpy.moveaxis(image, -1", lambda: explain(np.moveaxis(COLOUR, 0, -1))),
    ("image | uint8 | astype('float32') / 255", lambda: explain(np.zeros((3, 32, 32), np.uint8))),
    ("image | bool | astype('float32')", lambda: explain(IMAGE > 0)),
    ("image | <U8 | array of floats", lambda: explain("cell.png")),
    ("spacing | (5.0, 1.0, 1.0) | each of th", lambda: made().explain(IMAGE, 0, spacing=(5, 1, 1))),
    ("spacing | 5 | each spatial axis", lambda: made().explain(IMAGE, 0, spacing=5)),
    ("spacing | (1, 0) | pass the", lambda: Dyadic(8, spacing=(1, 0))),
    ("layout | 'CXY->ZYX' | pass 'CXY->CYX'", lambda: made().explain(IMAGE, 0, layout="CXY->ZYX")),
    ("image | (3, 0, 32) | at least one", lambda: explain(np.zeros((3, 0, 32)))),
    ("image | nan at (0, 3, 4) | nan_to_num", lambda: explain(with_value(np.nan))),
    ("target | target=2 | pass 0 to 1", lambda: explain(target=2, model=two_outputs)),
    ("target | target=1 | pass 0", lambda: explain(target=1)),
    ("target | -1 | whole number from 0", lambda: explain(target=-1)),
    ("target | 'cat' | whole number from 0", lambda: explain(target="cat")),
    ("target | [] | pass a class", lambda: explain(target=[])),
    ("target | 'x' | whole number", lambda: explain(target=[0, "x"])),
    ("target | (16, 1) | one number for each row", lambda: explain(target=lambda outputs: outputs)),
    ("model | 7 | torch module", lambda: explain(model=7)),
    ("model | dict | torch module", lambda: explain(model=dict)),
    ("baseline | (3, 32, 32), but the image h | image's", lambda: explain(baseline=Fixed(COLOUR))),
    ("baseline | (3, 32, 32) | image's own shape", lambda: explain(baseline=Mean([COLOUR]))),
    (
        "baseline | (3, 32, 32) | image's own shape",
        lambda: explain(baseline=References(np.zeros((4, 3, 32, 32)))),
    ),
    ("baseline | ndarray | Fixed(reference)", lambda: explain(baseline=IMAGE)),
    ("baseline | 0.0 | Constant(0.0)", lambda: explain(baseline=0.0)),
    ("baseline | Blur | Constant(0.0)", lambda: explain(baseline=Blur)),
    ("partition | 8 | Dyadic(min_size", lambda: explain(partition=8)),
    ("partition | Dyadic | Dyadic(min_size=10)", lambda: explain(partition=Dyadic)),
    ("search | 'dfs' | DepthFirst(tolerance", lambda: explain(search="dfs")),
    ("search | DepthFirst | DepthFirst(tolerance=0.0)", lambda: explain(search=DepthFirst)),
    ("tolerance | -0.1 | of 0 or more", lambda: DepthFirst(-0.1)),
    ("tolerance | nan | of 0 or more", lambda: DepthFirst(np.nan)),
    ("tolerance | '70%' | of 0 or more", lambda: DepthFirst("70%")),
    ("percentile | 170 | from 0 to 100", lambda: BreadthFirst(170)),
    ("percentile | -1 | from 0 to 100", lambda: BreadthFirst(-1)),
    ("tolerance | -0.1 | of 0 or more", lambda: GroupTesting(-0.1)),
    ("share | 3 | from 0 to 1", lambda: GroupTesting(share=3)),
    ("max_evaluations | 3 | pass 4 or mo", lambda: explain(search=GroupTesting(max_evaluations=3))),
    ("max_evaluations | 0 | 1 or more", lambda: DepthFirst(max_evaluations=0)),
    ("max_evaluations | max_eva | pass 16", lambda: explain(search=DepthFirst(max_evaluations=9))),
    ("max_seconds | -1 | of 0 or more", lambda: DepthFirst(max_seconds=-1)),
    ("width | 0 | 1 or more", lambda: DepthFirst(width=0)),
    ("keep_whole | 'yes' | True or False", lambda: DepthFirst(keep_whole="yes")),
    ("tolerence | tolerence=0.1 | did you mean tolerance", lambda: DepthFirst(tolerence=0.1)),
    (
        "background | background= | its options are model, baseline, partition, search",
        lambda: Explainer(any_marked, background=IMAGE, partition=Dyadic(8)),
    ),
    ("min_side | min_side=4 | did you mean min_size", lambda: Dyadic(min_side=4)),
    ("min_size | 0 | 1 or more", lambda: Dyadic(0)),
    ("min_size | -3 | 1 or more", lambda: Bisection(-3)),
    ("min_size | 2.5 | 1 or more", lambda: Dyadic(2.5)),
    ("min_size | (8, 8, 8) | or 2 of them", lambda: explain(partition=Dyadic((8, 8, 8)))),
    ("min_size | is empty | one for each spatial axis", lambda: Dyadic(())),
    ("min_size | '8' | 1 or more", lambda: Dyadic("8")),
    (
        "partition | 32 parts | Bisection",
        lambda: explain(np.zeros((1, *(2,) * 5)), partition=Dyadic(1)),
    ),
    ("offset | (1,) | or 2 of them", lambda: explain(partition=Shifted(Dyadic(8), (1,)))),
    ("offset | 0.5 | whole number", lambda: Shifted(Dyadic(8), 0.5)),
    ("partition | 8 | Dyadic(min_size=10)", lambda: Shifted(8, 1)),
    ("shifts | is empty | at least one", lambda: cycle_spin(made(), IMAGE, 0, shifts=[])),
    ("target | [0] | pass one", lambda: cycle_spin(made(), IMAGE, [0], shifts=[0])),
    ("value | (0.1, 0.2) | or 3 of them", lambda: explain(COLOUR, baseline=Constant((0.1, 0.2)))),
    ("value | (3, 32, 32) | use Fixed", lambda: Constant(COLOUR)),
    ("value | nan | nan_to_num", lambda: Constant(np.nan)),
    ("image | int64 | float32", lambda: Fixed(np.zeros((1, 8, 8), int))),
    ("image | nan | nan_to_num", lambda: Fixed(with_value(np.nan))),
    ("source | empty list | at least one", lambda: Mean([])),
    ("source | (32, 32) | use Fixed", lambda: Mean(IMAGE[0])),
    ("source | int | iterable", lambda: Mean(3)),
    ("source | str | iterable", lambda: Mean("images/")),
    ("source | (3, 32, 32) | to one shape", lambda: Mean([IMAGE, COLOUR])),
    ("source | uint8 | float32", lambda: Mean(np.zeros((2, 1, 8, 8), np.uint8))),
    ('of | \'leaf\' | "image" or "finding"', lambda: hshap.Share(0.1, of="leaf")),
    ("baseline | [] | Mean(", lambda: Explainer(any_marked, [])),
    ("count | 0 | 1 or more", lambda: Mean.of(COLOUR, 0)),
    ("sigma | 0.0 | of 0.001 or more", lambda: Blur(0.0)),
    ("images | (0, 1, 8, 8) | at least one", lambda: References(np.zeros((0, 1, 8, 8)))),
    ("images | (1, 1, 32, 32) | 2 or more, or use Fixed", lambda: References(IMAGE[None])),
    ("draws | 1 | 2 or more", lambda: References(np.zeros((3, 1, 8, 8)), draws=1)),
    ("tolerance | 1000 | of 0 or more", lambda: DepthFirst(10**400)),
    ("shifts | 3 | pass a list", lambda: cycle_spin(made(), IMAGE, 0, shifts=3)),
    ("pairs | None | pass a list", lambda: list(made().explain_many(None))),
    ("model | Batched | torch module", lambda: explain(model=Batched)),
    ("baseline | ndarray of shape (1, 32, 32) | Still(im", lambda: explain(baseline=np.zeros_like)),
    (
        "baseline | (3, 1, 32, 32) | (2, 1, 32, 32), whichever regions are shown",
        lambda: explain(
            baseline=lambda image: lambda kept: np.zeros((2 + bool(kept), *image.shape))
        ),
    ),
    ("partition | None | index, area, adaptive and", lambda: explain(partition=lambda image: None)),
    (
        "partition | into one part | two or more",
        lambda: explain(
            partition=lambda image: hshap.protocols.Box(
                (0, 0), (32, 32), lambda box: (hshap.protocols.Pixels(np.arange(1024), (32, 32)),)
            )
        ),
    ),
    (
        "partition | into one part | none if it is a leaf",
        lambda: explain(
            partition=lambda image: hshap.protocols.Box(
                (0, 0), (32, 32), lambda box: (box,) if box.area < 99 else Dyadic(8).split(box)
            )
        ),
    ),
    ("search | None | SearchResult(leaves)", lambda: explain(search=returns_nothing)),
    ("search | root | yield [root]", lambda: explain(search=asks_for_nothing)),
    ("search | root | yield [root]", lambda: explain(search=skips_the_root)),
    ("images | (32, 32) | [None]", lambda: References(IMAGE[0])),
    ("draws | draws=5 | fewer draws", lambda: References(np.zeros((3, 1, 8, 8)), draws=5)),
    ("seed | -1 | 0 or more", lambda: References(np.zeros((3, 1, 8, 8)), seed=-1)),
    ("sampler | array | Similar(", lambda: Conditional(IMAGE)),
    (
        "sampler | (1, 2) | (3, 1, 32, 32)",
        lambda: explain(baseline=Conditional(lambda *_: np.zeros((1, 2)), draws=3)),
    ),
    ("bandwidth | 0 | or more", lambda: Similar(np.zeros((3, 1, 8, 8)), bandwidth=0)),
    (
        "baseline | (1, 8, 8) | image's own shape",
        lambda: explain(baseline=Conditional(Similar(np.zeros((3, 1, 8, 8))))),
    ),
    ("batch_size | 0 | 1 or more", lambda: Batched(any_marked, batch_size=0)),
    ("autocast | 'bfloat16' | leave it out", lambda: Batched(any_marked, autocast="bfloat16")),
    ("pairs | ndarray | (image, target) or (image, ta", lambda: list(made().explain_many([IMAGE]))),
    ("rho | 1.5 | 0 to 1", lambda: hshap.theory.expected_visited(64, 2, 1.5)),
    ("n | 60 | pass 64", lambda: hshap.theory.cost_bound(60, 4, 1)),
    ("s | s=100 | smaller", lambda: hshap.theory.similarity_bound(100, 1, 64)),
    ("dataset | 3 | pass a folder", lambda: archive(3)),
    ("dataset | test_mistakes.py | .csv, .parquet or .tar", lambda: archive(__file__)),
    ("out | 3 | path of a folder", lambda: archive([IMAGE], out=3)),
    ("task_images | 0 | pass 1 or more", lambda: archive([IMAGE], task_images=0)),
    (
        "explainer | 'model' | a function that returns one",
        lambda: hshap.runs.explain_dataset("model", [IMAGE], "no-such-folder"),
    ),
    (
        "processor | image_mean | set processor.image_mean",
        lambda: models.transformers(torch_net(), processor(image_mean=None)),
    ),
    (
        "processor | {'max': 8} | pass resize=False",
        lambda: models.transformers(torch_net(), processor(do_resize=True, size={"max": 8})),
    ),
    ("model | Sequential | pass config=", lambda: models.timm(torch_net())),
    (
        "pretrained_cfg | mean | pass one with it",
        lambda: models.timm(torch_net(), config={"input_size": (3, 8, 8), "std": 1}),
    ),
    (
        "weights | crop_size | pass those",
        lambda: models.torchvision(torch_net(), SimpleNamespace(crop_size=[8])),
    ),
    ("model | len | pass one", lambda: models.prepared(len, models.Preparation())),
    ("std | 0.0 | spread of each channel", lambda: plain_model(std=0.0)),
    ("mean | 2 numbers | or 3", lambda: plain_model(mean=[1, 2])),
    ("interpolation | 'lanczos' | resize=None", lambda: plain_model(interpolation="lanczos")),
    ("image | -2 | before it is normalised", lambda: explain(COLOUR - 2.0, model=plain_model())),
    ("image | 255 | divide it by 255", lambda: explain(COLOUR + 255.0, model=plain_model())),
    (
        "image | (3, 9, 3) | layout='HWC' or 'CHW'",
        lambda: explain(np.zeros((3, 9, 3), np.uint8), model=plain_model()),
    ),
    (
        "image | (32, 32, 4) | image[..., :3]",
        lambda: explain(np.zeros((32, 32, 4), np.uint8), model=plain_model()),
    ),
    (
        "image | (2, 32, 32, 3) | image[0]",
        lambda: explain(np.zeros((2, 32, 32, 3), np.uint8), model=plain_model()),
    ),
    ("target | 'bleu' | did you mean 'blue'", lambda: explain(COLOUR, "bleu", model=plain_model())),
    ("names | output 1 | give each output", lambda: plain_model(names={0: "cat", 2: "dog"})),
    ("layout | 'NHWC' | pass one of the two", lambda: models.function(len, layout="NHWC")),
    ("model | len | pass one", lambda: models.keras(len)),
    ("least | 0.5 | pass a lower", lambda: models.detections(found_nothing, COLOUR)),
    ("box | (4, 4, 4, 9) | (left, top, right, bo", lambda: models.Detection((4, 4, 4, 9), label=1)),
    ("wanted | 5 | pass hshap.models.Detection", lambda: models.detector(found_nothing, 5)),
    (
        "boxes | (1, 3) | left, top, right, bottom",
        lambda: models.detections(lambda batch: [boxes_of([[1, 2, 3]])], COLOUR),
    ),
    (
        "scores | boxes (2, 4), scores (1,) | wrap it in a function",
        lambda: models.detections(lambda batch: [boxes_of([[1, 2, 3, 4]] * 2)], COLOUR),
    ),
    (
        "region | (5, 5) | pass one of the image's grid",
        lambda: explain(
            model=models.segmenter(lambda batch: batch[:, [0, 0]], np.ones((5, 5), bool))
        ),
    ),
    (
        "class names is 2 | outputs 3 | names=",
        lambda: explain(model=models.function(three_scores, names=["cat", "dog"])),
    ),
    (
        "class names is 2 | outputs 3 | names=",
        lambda: explain(image=COLOUR, model=plain_model(names=["cat", "dog"])),
    ),
    ("call | dict | pass a function", lambda: models.function(dict)),
    ("wanted | empty | detections(model, image)", lambda: models.detector(found_nothing, [])),
    ("region | no pixel | pass one", lambda: models.segmenter(len, np.zeros((8, 8), bool))),
    ("region | float64 | pass booleans", lambda: models.segmenter(len, np.zeros((8, 8)))),
    (
        "sentences | ' ' | pass one or more",
        lambda: models.image_text(torch_net(), processor(), ["a cat", " "]),
    ),
    ("model | get_image_ | CLIPMode", lambda: models.image_text(torch_net(), processor(), "a cat")),
    ("path | 3 | path of an image file", lambda: hshap.images.read_image(3)),
    ("axes | 'YXC' | after the chan", lambda: Scan(COLOUR, axes="YXC")),
    ("spacing | 0.0 | pass one", lambda: Scan(COLOUR, axes="CYX", spacing=(1.0, 0.0))),
    (
        "spacing | (1.0,) | one number for e",
        lambda: Scan(COLOUR, axes="CYX", spacing=(1.0,)),
    ),
    (
        "affine | (3, 3) | pass 4 x 4",
        lambda: Scan(COLOUR, axes="CYX", affine=np.eye(3)),
    ),
    (
        "window | (5.0, 5.0) | a larger one",
        lambda: Scan(COLOUR, axes="CYX").shown((5, 5)),
    ),
    ("z | 1 | axis Z", lambda: Scan(COLOUR, axes="CYX").plane(1)),
    (
        "geometry | CYX | spacing=",
        lambda: hshap.export.write_nifti("a.nii", np.zeros((32, 32)), Scan(COLOUR, "CYX")),
    ),
    (
        "labels | float64 | whole numbers",
        lambda: hshap.export.write_ome_zarr("a.zarr", np.zeros((32, 32)), Scan(COLOUR, axes="CYX")),
    ),
    ("workers | 0 | pass 1 or more", lambda: hshap.runs.Processes(0)),
]


@pytest.mark.parametrize(("told", "act"), MISTAKES, ids=[told for told, _ in MISTAKES])
def test_a_mistake_is_answered_in_one_line(told, act, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name, value, fix = told.split(" | ")
    inputs = (IMAGE, COLOUR)
    before = copy.deepcopy(inputs)
    with pytest.raises(HshapError) as caught:
        act()
    message = str(caught.value)
    assert "\n" not in message
    assert name in message.partition(";")[0], message
    assert value in message, message
    assert fix in message, message
    assert isinstance(caught.value, (ValueError, TypeError, RuntimeError))
    for image, original in zip(inputs, before, strict=True):
        assert np.array_equal(image, original)
    assert list(tmp_path.iterdir()) == [], "a mistake writes nothing"


# Values that mean more than their numbers

MASKED = np.ma.masked_greater(IMAGE, 0.5)
FILLED = r"masked values; (pass|return) \.filled\(value\)"
MASKED_MAP = np.ma.masked_greater(IMAGE[0], 0.5)


MASKED_INPUTS = {
    "image": lambda: explain(MASKED),
    "image in a list": lambda: explain(list(MASKED)),
    "image with a layout": lambda: made().explain(MASKED_MAP, target=0, layout="YX"),
    "image of a pair": lambda: list(made().explain_many([(MASKED, 0)])),
    "image that is copied": lambda: list(made().explain_many(p for p in [(MASKED, 0)])),
    "baseline": lambda: explain(baseline=Fixed(MASKED)),
    "colour": lambda: Constant(np.ma.array([0.0, 1.0], mask=[True, False])),
    "references": lambda: References(MASKED[None]),
    "data set": lambda: Mean(MASKED[None]),
    "answer of a baseline": lambda: explain(baseline=lambda image: lambda kept: MASKED[None]),
    "answer of a sampler": lambda: explain(
        baseline=Conditional(lambda image, visible, draws, rng: np.ma.stack([MASKED] * 2), draws=2)
    ),
    "answer of a model": lambda: explain(
        model=lambda batch: np.ma.masked_less(any_marked(batch), 0.5)
    ),
    "answer of a target": lambda: explain(target=lambda out: np.ma.masked_less(out[:, 0], 0.5)),
    "labels": lambda: explain(partition=hshap.Superpixels(labels=np.ma.masked_less(LABELS, 1))),
    "map of a metric": lambda: hshap.metrics.f1(MASKED_MAP, IMAGE[0] > 0),
    "mask of a metric": lambda: hshap.metrics.f1(
        IMAGE[0], np.ma.array(IMAGE[0] > 0, mask=IMAGE[0] > 0)
    ),
    "game": lambda: hshap.shapley(np.ma.array([0.0, 1.0], mask=[True, False])),
    "image of an ablation": lambda: hshap.metrics.ablation_curve(
        any_marked, MASKED, IMAGE[0], np.zeros_like(IMAGE), [0, 4]
    ),
    "scan": lambda: Scan(MASKED, axes="CYX"),
    "large image": lambda: hshap.large.open_image(MASKED),
    "map to place": lambda: explain().placement.spread(MASKED_MAP),
    "image of a plot": lambda: explain().plot(MASKED),
    "map of a plot": lambda: explain().plot(IMAGE, heat=MASKED_MAP),
    "image of a page": lambda: hshap.export.page.View("a", MASKED, {"a": explain()}),
}
LABELS = np.arange(1024).reshape(32, 32) // 256


@pytest.mark.parametrize("case", MASKED_INPUTS)
def test_masked_arrays_are_refused_everywhere(case):
    with pytest.raises(HshapError, match=FILLED):
        MASKED_INPUTS[case]()


@pytest.mark.frameworks
def test_masked_images_of_shap_are_refused():
    made, two = hshap.drop_ins.ShapExplainer, np.stack([IMAGE] * 2)
    with pytest.raises(HshapError, match=FILLED):
        made(any_marked, MASKED[None])(IMAGE[None])
    with pytest.raises(HshapError, match=FILLED):
        made(any_marked, two)(MASKED[None])


def test_an_array_that_masks_nothing_is_that_array():
    made = explain(np.ma.array(IMAGE, mask=np.zeros_like(IMAGE, bool)))
    assert made.boxes() == explain(IMAGE).boxes()


@pytest.mark.parametrize("stream", [False, True])
def test_a_masked_image_of_a_run_fails_alone(tmp_path, stream):
    pytest.importorskip("pyarrow")
    images = [IMAGE, MASKED, IMAGE * 0.9]
    run = archive((image for image in images) if stream else images, tmp_path / "run")
    assert [row["image"] for row in run.errors] == ["00000001"]
    assert "masked values; pass .filled(value)" in run.errors[0]["reason"]
    assert len(run) == 2


ODD_ARRAYS = {
    "objects": (IMAGE.astype(object), "type object"),
    "records": (np.zeros((1, 4, 4), [("red", float)]), "type \\[\\('red'"),
    "dates": (np.zeros((1, 4, 4), "datetime64[s]"), "datetime64"),
    "durations": (np.zeros((1, 4, 4), "timedelta64[s]"), "timedelta64"),
    "complex numbers": (IMAGE + 0j, "complex64"),
    "texts": (np.full((1, 4, 4), "1.0"), "type <U3"),
    "a ragged list": ([[[1.0, 2.0], [3.0]]], "is a list, not an array"),
    "None": (None, "type object"),
}


@pytest.mark.parametrize("case", ODD_ARRAYS)
def test_arrays_that_are_not_of_numbers_are_refused(case):
    value, told = ODD_ARRAYS[case]
    with pytest.raises(ArgumentError, match=f"image .*{told}"):
        explain(value)
    with pytest.raises(ArgumentError, match=told):
        hshap.metrics.f1(value, np.ones((1, 4, 4), bool))


def test_views_and_subclasses_of_arrays_are_their_numbers(tmp_path):
    expected = explain(IMAGE).boxes()
    np.save(tmp_path / "image.npy", IMAGE)
    mapped = np.load(tmp_path / "image.npy", mmap_mode="r")
    turned = np.ascontiguousarray(IMAGE[:, ::-1])[:, ::-1]
    for image in (mapped, turned, IMAGE.astype(">f4"), np.asfortranarray(IMAGE), IMAGE.tolist()):
        assert explain(image).boxes() == expected
    matrix = IMAGE[0].view(np.matrix)
    measured = [hshap.metrics.f1(heat, IMAGE[0] > 0, 0.5) for heat in (matrix, IMAGE[0])]
    assert measured[0] == measured[1]


@pytest.mark.frameworks
def test_tables_with_missing_values_are_refused():
    pandas = pytest.importorskip("pandas")
    xarray = pytest.importorskip("xarray")
    table = pandas.DataFrame(IMAGE[0]).astype("Float32")
    table.iloc[3, 4] = pandas.NA
    whole = xarray.DataArray(np.ma.masked_greater(IMAGE, 0.5), dims=("c", "y", "x"))
    for image in (table, pandas.DataFrame(IMAGE[0]).replace(0.0, np.nan)):
        with pytest.raises(ArgumentError, match=r"type object|not finite"):
            made().explain(image, target=0, layout="YX")
    with pytest.raises(ArgumentError, match="not finite"):
        explain(whole)


@pytest.fixture(scope="module")
def odd_tensors():
    """Tensors of other kinds than arrays of numbers, and the fix of each."""
    torch = pytest.importorskip("torch")
    plain = torch.from_numpy(IMAGE)
    with warnings.catch_warnings():  # of torch: some of these are prototypes
        warnings.simplefilter("ignore")
        masked = torch.masked.masked_tensor(plain, plain < 0.5)
        compressed = plain[0].to_sparse_csr()
        quantised = torch.quantize_per_tensor(plain, 0.1, 0, torch.quint8)
    return [
        (masked, r"\.to_tensor\(value\)"),
        (plain.to_sparse(), r"\.to_dense\(\)"),
        (compressed, r"\.to_dense\(\)"),
        (quantised, r"\.dequantize\(\)"),
        (plain.to("meta"), "holds no values"),
        (plain.to(torch.complex64), "complex64"),
    ]


def test_tensors_that_are_not_plain_numbers_are_refused(odd_tensors):
    for value, told in odd_tensors:
        with pytest.raises(ArgumentError, match=told) as caught:
            explain(value)
        assert "\n" not in str(caught.value)


def test_tensors_of_rare_types_are_their_numbers():
    torch = pytest.importorskip("torch")
    expected = explain(IMAGE).boxes()
    plain = torch.from_numpy(IMAGE)
    negated = torch.view_as_complex(torch.stack([plain, -plain], -1)).conj().imag
    for image in (plain.bfloat16(), plain.to(torch.float8_e5m2), negated, plain.requires_grad_()):
        assert explain(image).boxes() == expected


def test_an_unknown_option_is_a_type_error():
    with pytest.raises(TypeError):
        Dyadic(min_side=4)
    assert issubclass(UnknownOptionError, TypeError)
    assert issubclass(ArgumentError, ValueError)


def test_a_missing_package_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(hshap.errors.MissingExtraError, match=r"needs matplotlib: pip install"):
        explain().plot(IMAGE)
