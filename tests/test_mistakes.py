"""A mistake in any argument gives one line that names the argument, its value and the fix."""

from __future__ import annotations

import copy
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
    UnknownOptionError,
    cycle_spin,
)

IMAGE = marked((32, 32), [5, 700])
COLOUR = np.zeros((3, 32, 32), np.float32)


def explain(image=IMAGE, target=0, *, model=any_marked, **recipes):
    settings = {"baseline": Constant(0.0), "partition": Dyadic(8), **recipes}
    return Explainer(model, **settings).explain(image, target)


def archive(dataset, out="no-such-folder", **options):
    made = Explainer(any_marked, baseline=Constant(0.0), partition=Dyadic(8))
    return hshap.runs.explain_dataset(made, dataset, out, target=0, **options)


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
    made = hshap.models.Preparation(**options)
    return hshap.models.prepared(torch_net(), made, names=names)


def boxes_of(boxes):
    return {"boxes": boxes, "scores": [1.0], "labels": [0]}


def three_scores(batch):
    return np.repeat(batch.max(axis=(1, 2)), 3, axis=1)[:, :3]


def found_nothing(batch):
    return [{"boxes": [], "scores": [], "labels": []}] * len(batch)


def processor(**fields):
    usual = {"do_normalize": True, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    return SimpleNamespace(**{**usual, **fields})


# What is done, the argument that the message names, the value it shows, and the fix it gives.
CASES = {
    "image without channels": (lambda: explain(IMAGE[0, 0]), "image", "(32,)", "image[None]"),
    "image that is a number": (lambda: explain(np.float32(1)), "image", "()", "image[None]"),
    "image with channels last": (
        lambda: explain(np.moveaxis(COLOUR, 0, -1)),
        "image",
        "(32, 32, 3)",
        "numpy.moveaxis(image, -1, 0)",
    ),
    "grey image with channels last": (
        lambda: explain(np.zeros((32, 32, 1))),
        "image",
        "(32, 32, 1)",
        "numpy.moveaxis",
    ),
    "integer image": (
        lambda: explain(np.zeros((3, 32, 32), np.uint8)),
        "image",
        "uint8",
        "astype('float32') / 255",
    ),
    "boolean image": (lambda: explain(IMAGE > 0), "image", "bool", "astype('float32')"),
    "complex image": (lambda: explain(IMAGE + 0j), "image", "complex64", "array of floats"),
    "image that is text": (lambda: explain("cell.png"), "image", "<U8", "array of floats"),
    "image that is None": (lambda: explain(None), "image", "object", "array of floats"),
    "ragged image": (lambda: explain([[1.0], [1.0, 2.0]]), "image", "list", "array of floats"),
    "spacing of another image": (
        lambda: Explainer(any_marked, Constant(0.0), Dyadic(8)).explain(
            IMAGE, 0, spacing=(5, 1, 1)
        ),
        "spacing",
        "(5.0, 1.0, 1.0)",
        "each of the 2 spatial axes",
    ),
    "spacing that is one number": (
        lambda: Explainer(any_marked, Constant(0.0), Dyadic(8)).explain(IMAGE, 0, spacing=5),
        "spacing",
        "5",
        "each spatial axis",
    ),
    "spacing of a partition": (lambda: Dyadic(8, spacing=(1, 0)), "spacing", "(1, 0)", "pass the"),
    "arrow to other axes": (
        lambda: Explainer(any_marked, Constant(0.0)).explain(IMAGE, 0, layout="CXY->ZYX"),
        "layout",
        "'CXY->ZYX'",
        "pass 'CXY->CYX'",
    ),
    "image with no pixels": (
        lambda: explain(np.zeros((3, 0, 32))),
        "image",
        "(3, 0, 32)",
        "at least one",
    ),
    "image with NaN": (
        lambda: explain(with_value(np.nan)),
        "image",
        "nan at (0, 3, 4)",
        "nan_to_num",
    ),
    "image with infinity": (
        lambda: explain(with_value(np.inf)),
        "image",
        "inf at (0, 3, 4)",
        "nan_to_num",
    ),
    "target out of range": (
        lambda: explain(target=2, model=two_outputs),
        "target",
        "target=2",
        "pass 0 to 1",
    ),
    "target of a single output": (lambda: explain(target=1), "target", "target=1", "pass 0"),
    "negative target": (lambda: explain(target=-1), "target", "-1", "whole number from 0"),
    "fractional target": (lambda: explain(target=0.5), "target", "0.5", "whole number from 0"),
    "named target": (lambda: explain(target="cat"), "target", "'cat'", "whole number from 0"),
    "boolean target": (lambda: explain(target=True), "target", "True", "whole number from 0"),
    "no target": (lambda: explain(target=None), "target", "None", "whole number from 0"),
    "empty list of targets": (lambda: explain(target=[]), "target", "[]", "pass a class"),
    "one of the targets is bad": (
        lambda: explain(target=[0, "x"]),
        "target",
        "'x'",
        "whole number",
    ),
    "target that returns too much": (
        lambda: explain(target=lambda outputs: outputs),
        "target",
        "(16, 1)",
        "one number for each row, (16,)",
    ),
    "model that cannot be called": (lambda: explain(model=7), "model", "7", "torch module"),
    "model that is a class": (lambda: explain(model=dict), "model", "dict", "torch module"),
    "baseline of another shape": (
        lambda: explain(baseline=Fixed(COLOUR)),
        "baseline",
        "(3, 32, 32), but the image has (1, 32, 32)",
        "image's own shape",
    ),
    "mean of another shape": (
        lambda: explain(baseline=Mean([COLOUR])),
        "baseline",
        "(3, 32, 32)",
        "image's own shape",
    ),
    "references of another shape": (
        lambda: explain(baseline=References(np.zeros((4, 3, 32, 32)))),
        "baseline",
        "(3, 32, 32)",
        "image's own shape",
    ),
    "baseline that is an array": (
        lambda: explain(baseline=IMAGE),
        "baseline",
        "ndarray",
        "Fixed(reference)",
    ),
    "baseline that is a number": (
        lambda: explain(baseline=0.0),
        "baseline",
        "0.0",
        "Constant(0.0)",
    ),
    "baseline that is a class": (
        lambda: explain(baseline=Blur),
        "baseline",
        "Blur",
        "Constant(0.0)",
    ),
    "partition that is a number": (
        lambda: explain(partition=8),
        "partition",
        "8",
        "Dyadic(min_size",
    ),
    "partition that is a class": (
        lambda: explain(partition=Dyadic),
        "partition",
        "Dyadic",
        "Dyadic(min_size=10)",
    ),
    "search that is a word": (
        lambda: explain(search="dfs"),
        "search",
        "'dfs'",
        "DepthFirst(tolerance",
    ),
    "search that is a class": (
        lambda: explain(search=DepthFirst),
        "search",
        "DepthFirst",
        "DepthFirst(tolerance=0.0)",
    ),
    "negative tolerance": (lambda: DepthFirst(-0.1), "tolerance", "-0.1", "of 0 or more"),
    "NaN tolerance": (lambda: DepthFirst(np.nan), "tolerance", "nan", "of 0 or more"),
    "tolerance in words": (lambda: DepthFirst("70%"), "tolerance", "'70%'", "of 0 or more"),
    "complex tolerance": (lambda: DepthFirst(1j), "tolerance", "1j", "of 0 or more"),
    "percentile of 170": (lambda: BreadthFirst(170), "percentile", "170", "from 0 to 100"),
    "negative percentile": (lambda: BreadthFirst(-1), "percentile", "-1", "from 0 to 100"),
    "negative tolerance of groups": (
        lambda: GroupTesting(-0.1),
        "tolerance",
        "-0.1",
        "of 0 or more",
    ),
    "share of 3": (lambda: GroupTesting(share=3), "share", "3", "from 0 to 1"),
    "too few evaluations for groups": (
        lambda: explain(search=GroupTesting(max_evaluations=3)),
        "max_evaluations",
        "3",
        "pass 4 or more",
    ),
    "no evaluations": (lambda: DepthFirst(max_evaluations=0), "max_evaluations", "0", "1 or more"),
    "too few evaluations": (
        lambda: explain(search=DepthFirst(max_evaluations=9)),
        "max_evaluations",
        "max_evaluations=9",
        "pass 16 or more",
    ),
    "negative seconds": (lambda: DepthFirst(max_seconds=-1), "max_seconds", "-1", "of 0 or more"),
    "zero width": (lambda: DepthFirst(width=0), "width", "0", "1 or more"),
    "keep_whole that is a word": (
        lambda: DepthFirst(keep_whole="yes"),
        "keep_whole",
        "'yes'",
        "True or False",
    ),
    "unknown option of a search": (
        lambda: DepthFirst(tolerence=0.1),
        "tolerence",
        "tolerence=0.1",
        "did you mean tolerance",
    ),
    "unknown option of an explainer": (
        lambda: Explainer(any_marked, background=IMAGE, partition=Dyadic(8)),
        "background",
        "background=",
        "its options are model, baseline, partition, search",
    ),
    "unknown option of a partition": (
        lambda: Dyadic(min_side=4),
        "min_side",
        "min_side=4",
        "did you mean min_size",
    ),
    "min_size of zero": (lambda: Dyadic(0), "min_size", "0", "1 or more"),
    "negative min_size": (lambda: Bisection(-3), "min_size", "-3", "1 or more"),
    "fractional min_size": (lambda: Dyadic(2.5), "min_size", "2.5", "1 or more"),
    "min_size with an entry too many": (
        lambda: explain(partition=Dyadic((8, 8, 8))),
        "min_size",
        "(8, 8, 8)",
        "or 2 of them",
    ),
    "empty min_size": (lambda: Dyadic(()), "min_size", "is empty", "one for each spatial axis"),
    "min_size in words": (lambda: Dyadic("8"), "min_size", "'8'", "1 or more"),
    "too many parts": (
        lambda: explain(np.zeros((1, *(2,) * 5)), partition=Dyadic(1)),
        "partition",
        "32 parts",
        "Bisection",
    ),
    "offset with an entry too few": (
        lambda: explain(partition=Shifted(Dyadic(8), (1,))),
        "offset",
        "(1,)",
        "or 2 of them",
    ),
    "fractional offset": (lambda: Shifted(Dyadic(8), 0.5), "offset", "0.5", "whole number"),
    "shifted nothing": (lambda: Shifted(8, 1), "partition", "8", "Dyadic(min_size=10)"),
    "no shifts": (
        lambda: cycle_spin(
            Explainer(any_marked, baseline=Constant(), partition=Dyadic(8)), IMAGE, 0, shifts=[]
        ),
        "shifts",
        "is empty",
        "at least one",
    ),
    "several targets to spin": (
        lambda: cycle_spin(
            Explainer(any_marked, baseline=Constant(), partition=Dyadic(8)), IMAGE, [0], shifts=[0]
        ),
        "target",
        "[0]",
        "pass one",
    ),
    "constant for another number of channels": (
        lambda: explain(COLOUR, baseline=Constant((0.1, 0.2))),
        "value",
        "(0.1, 0.2)",
        "or 3 of them",
    ),
    "constant that is an image": (lambda: Constant(COLOUR), "value", "(3, 32, 32)", "use Fixed"),
    "constant that is NaN": (lambda: Constant(np.nan), "value", "nan", "nan_to_num"),
    "fixed integer image": (lambda: Fixed(np.zeros((1, 8, 8), int)), "image", "int64", "float32"),
    "fixed image with NaN": (lambda: Fixed(with_value(np.nan)), "image", "nan", "nan_to_num"),
    "mean of nothing": (lambda: Mean([]), "source", "empty list", "at least one"),
    "mean of an empty array": (
        lambda: Mean(np.zeros((0, 1, 8, 8))),
        "source",
        "empty ndarray",
        "at least one",
    ),
    "mean of one image": (lambda: Mean(IMAGE[0]), "source", "(32, 32)", "use Fixed"),
    "mean of a number": (lambda: Mean(3), "source", "int", "iterable"),
    "mean of a name": (lambda: Mean("images/"), "source", "str", "iterable"),
    "mean of mixed shapes": (
        lambda: Mean([IMAGE, COLOUR]),
        "source",
        "(3, 32, 32)",
        "to one shape",
    ),
    "mean of integers": (
        lambda: Mean(np.zeros((2, 1, 8, 8), np.uint8)),
        "source",
        "uint8",
        "float32",
    ),
    "a share of what": (
        lambda: hshap.Share(0.1, of="leaf"),
        "of",
        "'leaf'",
        '"image" or "finding"',
    ),
    "an empty list of baselines": (lambda: Explainer(any_marked, []), "baseline", "[]", "Mean("),
    "a mean of no images": (lambda: Mean.of(COLOUR, 0), "count", "0", "1 or more"),
    "no blur": (lambda: Blur(0.0), "sigma", "0.0", "of 0.001 or more"),
    "empty references": (
        lambda: References(np.zeros((0, 1, 8, 8))),
        "images",
        "(0, 1, 8, 8)",
        "at least one",
    ),
    "one reference": (
        lambda: References(IMAGE[None]),
        "images",
        "(1, 1, 32, 32)",
        "2 or more, or use Fixed",
    ),
    "one draw": (
        lambda: References(np.zeros((3, 1, 8, 8)), draws=1),
        "draws",
        "1",
        "2 or more",
    ),
    "constant in words": (lambda: Constant("0.5"), "value", "<U3", "array of floats"),
    "constant that is None": (lambda: Constant(None), "value", "object", "array of floats"),
    "tolerance beyond floats": (lambda: DepthFirst(10**400), "tolerance", "1000", "of 0 or more"),
    "shifts that are a number": (
        lambda: cycle_spin(
            Explainer(any_marked, baseline=Constant(), partition=Dyadic(8)), IMAGE, 0, shifts=3
        ),
        "shifts",
        "3",
        "pass a list",
    ),
    "no pairs at all": (
        lambda: list(
            Explainer(any_marked, baseline=Constant(), partition=Dyadic(8)).explain_many(None)
        ),
        "pairs",
        "None",
        "pass a list",
    ),
    "evaluator that is a class": (
        lambda: explain(model=Batched),
        "model",
        "Batched",
        "torch module",
    ),
    "baseline that gives an array": (
        lambda: explain(baseline=np.zeros_like),
        "baseline",
        "ndarray of shape (1, 32, 32)",
        "Still(images)",
    ),
    "baseline whose draws vary": (
        lambda: explain(
            baseline=lambda image: lambda kept: np.zeros((2 + bool(kept), *image.shape))
        ),
        "baseline",
        "(3, 1, 32, 32)",
        "(2, 1, 32, 32), whichever regions are shown",
    ),
    "partition that gives nothing": (
        lambda: explain(partition=lambda image: None),
        "partition",
        "None",
        "index, area, adaptive and split()",
    ),
    "partition into one part": (
        lambda: explain(
            partition=lambda image: hshap.Box(
                (0, 0), (32, 32), lambda box: (hshap.Pixels(np.arange(1024), (32, 32)),)
            )
        ),
        "partition",
        "into one part",
        "two or more",
    ),
    "partition whose leaf is its own part": (
        lambda: explain(
            partition=lambda image: hshap.Box(
                (0, 0), (32, 32), lambda box: (box,) if box.area < 99 else Dyadic(8).split(box)
            )
        ),
        "partition",
        "into one part",
        "none if it is a leaf",
    ),
    "search that returns nothing": (
        lambda: explain(search=returns_nothing),
        "search",
        "None",
        "SearchResult(leaves)",
    ),
    "search that asks for nothing": (
        lambda: explain(search=asks_for_nothing),
        "search",
        "root",
        "yield [root]",
    ),
    "search that skips the root": (
        lambda: explain(search=skips_the_root),
        "search",
        "root",
        "yield [root]",
    ),
    "a reference without its axis": (lambda: References(IMAGE[0]), "images", "(32, 32)", "[None]"),
    "more draws than references": (
        lambda: References(np.zeros((3, 1, 8, 8)), draws=5),
        "draws",
        "draws=5",
        "fewer draws",
    ),
    "negative seed": (
        lambda: References(np.zeros((3, 1, 8, 8)), seed=-1),
        "seed",
        "-1",
        "0 or more",
    ),
    "sampler that cannot be called": (lambda: Conditional(IMAGE), "sampler", "array", "Similar("),
    "sampler of another shape": (
        lambda: explain(baseline=Conditional(lambda *_: np.zeros((1, 2)), draws=3)),
        "sampler",
        "(1, 2)",
        "(3, 1, 32, 32)",
    ),
    "bandwidth of zero": (
        lambda: Similar(np.zeros((3, 1, 8, 8)), bandwidth=0),
        "bandwidth",
        "0",
        "or more",
    ),
    "similar images of another shape": (
        lambda: explain(baseline=Conditional(Similar(np.zeros((3, 1, 8, 8))))),
        "baseline",
        "(1, 8, 8)",
        "image's own shape",
    ),
    "empty batch": (lambda: Batched(any_marked, batch_size=0), "batch_size", "0", "1 or more"),
    "autocast without torch": (
        lambda: Batched(any_marked, autocast="bfloat16"),
        "autocast",
        "'bfloat16'",
        "leave it out",
    ),
    "pairs that are images": (
        lambda: list(
            Explainer(any_marked, baseline=Constant(), partition=Dyadic(8)).explain_many([IMAGE])
        ),
        "pairs",
        "ndarray",
        "(image, target) or (image, target, baseline) tuples",
    ),
    "rho above one": (lambda: hshap.theory.expected_visited(64, 2, 1.5), "rho", "1.5", "0 to 1"),
    "n that is no power": (lambda: hshap.theory.cost_bound(60, 4, 1), "n", "60", "pass 64"),
    "leaves larger than the image": (
        lambda: hshap.theory.similarity_bound(100, 1, 64),
        "s",
        "s=100",
        "smaller",
    ),
    "data set of a run": (lambda: archive(3), "dataset", "3", "pass a folder"),
    "data set that is no archive": (
        lambda: archive(__file__),
        "dataset",
        __file__,
        ".csv, .parquet or .tar",
    ),
    "folder of a run": (lambda: archive([IMAGE], out=3), "out", "3", "path of a folder"),
    "images of a task": (
        lambda: archive([IMAGE], task_images=0),
        "task_images",
        "0",
        "pass 1 or more",
    ),
    "explainer of a run": (
        lambda: hshap.runs.explain_dataset("model", [IMAGE], "no-such-folder"),
        "explainer",
        "'model'",
        "a function that returns one",
    ),
    "processor without a mean": (
        lambda: hshap.models.transformers(torch_net(), processor(image_mean=None)),
        "processor",
        "image_mean",
        "set processor.image_mean",
    ),
    "processor with an unknown size": (
        lambda: hshap.models.transformers(torch_net(), processor(do_resize=True, size={"max": 8})),
        "processor",
        "{'max': 8}",
        "pass resize=False",
    ),
    "timm model without a config": (
        lambda: hshap.models.timm(torch_net()),
        "model",
        "Sequential",
        "pass config=",
    ),
    "timm config without a mean": (
        lambda: hshap.models.timm(torch_net(), config={"input_size": (3, 8, 8), "std": 1}),
        "pretrained_cfg",
        "mean",
        "pass one with it",
    ),
    "weights without mean and std": (
        lambda: hshap.models.torchvision(torch_net(), SimpleNamespace(crop_size=[8])),
        "weights",
        "crop_size",
        "pass those",
    ),
    "model to prepare that is no module": (
        lambda: hshap.models.prepared(len, hshap.models.Preparation()),
        "model",
        "len",
        "pass one",
    ),
    "std of zero": (lambda: plain_model(std=0.0), "std", "0.0", "spread of each channel"),
    "mean of two numbers": (lambda: plain_model(mean=[1, 2]), "mean", "2 numbers", "or 3"),
    "unknown interpolation": (
        lambda: plain_model(interpolation="lanczos"),
        "interpolation",
        "'lanczos'",
        "resize=None",
    ),
    "normalised image for a plain model": (
        lambda: explain(COLOUR - 2.0, model=plain_model()),
        "image",
        "-2",
        "before it is normalised",
    ),
    "image up to 255 for a plain model": (
        lambda: explain(COLOUR + 255.0, model=plain_model()),
        "image",
        "255",
        "divide it by 255",
    ),
    "channels first or last": (
        lambda: explain(np.zeros((3, 9, 3), np.uint8), model=plain_model()),
        "image",
        "(3, 9, 3)",
        "layout='HWC' or 'CHW'",
    ),
    "transparent image": (
        lambda: explain(np.zeros((32, 32, 4), np.uint8), model=plain_model()),
        "image",
        "(32, 32, 4)",
        "image[..., :3]",
    ),
    "batch for a plain model": (
        lambda: explain(np.zeros((2, 32, 32, 3), np.uint8), model=plain_model()),
        "image",
        "(2, 32, 32, 3)",
        "image[0]",
    ),
    "class that the model lacks": (
        lambda: explain(COLOUR, "bleu", model=plain_model()),
        "target",
        "'bleu'",
        "did you mean 'blue'?",
    ),
    "names with a gap": (
        lambda: plain_model(names={0: "cat", 2: "dog"}),
        "names",
        "output 1",
        "give each output",
    ),
    "estimator without probabilities": (
        lambda: hshap.models.scikit_learn(SimpleNamespace(predict=len)),
        "estimator",
        "predict_proba",
        "pass method='predict'",
    ),
    "image that an estimator was not fitted on": (
        lambda: explain(
            model=hshap.models.scikit_learn(
                SimpleNamespace(predict=len, n_features_in_=64), method="predict"
            )
        ),
        "image",
        "1024 numbers",
        "fitted on",
    ),
    "layout of a function": (
        lambda: hshap.models.jax(len, layout="NHWC"),
        "layout",
        "'NHWC'",
        "pass one of the two",
    ),
    "model that is not of Keras": (
        lambda: hshap.models.keras(len),
        "model",
        "len",
        "pass one",
    ),
    "detector that finds nothing": (
        lambda: hshap.models.detections(found_nothing, COLOUR),
        "least",
        "0.5",
        "pass a lower",
    ),
    "box without a side": (
        lambda: hshap.models.Detection((4, 4, 4, 9), label=1),
        "box",
        "(4, 4, 4, 9)",
        "(left, top, right, bottom)",
    ),
    "a box as a number": (
        lambda: hshap.models.detector(found_nothing, 5),
        "wanted",
        "5",
        "pass hshap.models.Detection",
    ),
    "boxes of three numbers": (
        lambda: hshap.models.detections(lambda batch: [boxes_of([[1, 2, 3]])], COLOUR),
        "boxes",
        "(1, 3)",
        "left, top, right, bottom",
    ),
    "more boxes than scores": (
        lambda: hshap.models.detections(lambda batch: [boxes_of([[1, 2, 3, 4]] * 2)], COLOUR),
        "scores",
        "boxes (2, 4), scores (1,)",
        "wrap it in a function",
    ),
    "region of another size": (
        lambda: explain(
            model=hshap.models.segmenter(lambda batch: batch[:, [0, 0]], np.ones((5, 5), bool))
        ),
        "region",
        "(5, 5)",
        "pass one of the image's grid",
    ),
    "fewer names than outputs": (
        lambda: explain(model=hshap.models.jax(three_scores, names=["cat", "dog"])),
        "class names is 2",
        "outputs 3",
        "names=",
    ),
    "fewer names than outputs of a module": (
        lambda: explain(image=COLOUR, model=plain_model(names=["cat", "dog"])),
        "class names is 2",
        "outputs 3",
        "names=",
    ),
    "class of an estimator": (
        lambda: hshap.models.scikit_learn(dict),
        "estimator",
        "dict",
        "pass a fitted estimator",
    ),
    "no box to explain": (
        lambda: hshap.models.detector(found_nothing, []),
        "wanted",
        "empty",
        "detections(model, image)",
    ),
    "region without a pixel": (
        lambda: hshap.models.segmenter(len, np.zeros((8, 8), bool)),
        "region",
        "no pixel",
        "pass one",
    ),
    "region of numbers": (
        lambda: hshap.models.segmenter(len, np.zeros((8, 8))),
        "region",
        "float64",
        "pass booleans",
    ),
    "empty sentence": (
        lambda: hshap.models.image_text(torch_net(), processor(), ["a cat", " "]),
        "sentences",
        "' '",
        "pass one or more",
    ),
    "model without texts": (
        lambda: hshap.models.image_text(torch_net(), processor(), "a cat"),
        "model",
        "get_image_features",
        "CLIPModel",
    ),
    "path of a scan": (lambda: hshap.read_image(3), "path", "3", "path of an image file"),
    "axes of a scan": (lambda: hshap.Scan(COLOUR, axes="YXC"), "axes", "'YXC'", "after the chan"),
    "spacing of a scan": (
        lambda: hshap.Scan(COLOUR, axes="CYX", spacing=(1.0, 0.0)),
        "spacing",
        "0.0",
        "pass one",
    ),
    "number of spacings": (
        lambda: hshap.Scan(COLOUR, axes="CYX", spacing=(1.0,)),
        "spacing",
        "(1.0,)",
        "one number for each of YX",
    ),
    "affine of a scan": (
        lambda: hshap.Scan(COLOUR, axes="CYX", affine=np.eye(3)),
        "affine",
        "(3, 3)",
        "pass 4 x 4",
    ),
    "window": (
        lambda: hshap.Scan(COLOUR, axes="CYX").shown((5, 5)),
        "window",
        "(5.0, 5.0)",
        "a larger one",
    ),
    "slice of a picture": (lambda: hshap.Scan(COLOUR, axes="CYX").plane(1), "z", "1", "axis Z"),
    "scan without a place": (
        lambda: hshap.export.write_nifti("a.nii", np.zeros((32, 32)), hshap.Scan(COLOUR, "CYX")),
        "geometry",
        "CYX",
        "spacing=",
    ),
    "labels of a scan": (
        lambda: hshap.export.write_ome_zarr(
            "a.zarr", np.zeros((32, 32)), hshap.Scan(COLOUR, axes="CYX")
        ),
        "labels",
        "float64",
        "whole numbers",
    ),
    "workers": (lambda: hshap.runs.Processes(0), "workers", "0", "pass 1 or more"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_is_answered_in_one_line(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    act, name, value, fix = CASES[case]
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


def made_now(**recipes):
    return Explainer(any_marked, **{"baseline": Constant(0.0), "partition": Dyadic(8), **recipes})


MASKED_INPUTS = {
    "image": lambda: explain(MASKED),
    "image in a list": lambda: explain(list(MASKED)),
    "image with a layout": lambda: made_now().explain(MASKED_MAP, target=0, layout="YX"),
    "image of a pair": lambda: list(made_now().explain_many([(MASKED, 0)])),
    "image that is copied": lambda: list(made_now().explain_many(p for p in [(MASKED, 0)])),
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
    "data of shap": lambda: hshap.drop_ins.ShapExplainer(any_marked, MASKED[None])(IMAGE[None]),
    "images of shap": lambda: hshap.drop_ins.ShapExplainer(any_marked, np.stack([IMAGE] * 2))(
        MASKED[None]
    ),
    "scan": lambda: hshap.Scan(MASKED, axes="CYX"),
    "large image": lambda: hshap.open_image(MASKED),
    "map to place": lambda: explain().placement.spread(MASKED_MAP),
    "image of a plot": lambda: explain().plot(MASKED),
    "map of a plot": lambda: explain().plot(IMAGE, heat=MASKED_MAP),
    "image of a page": lambda: hshap.export.page.View("a", MASKED, {"a": explain()}),
}
LABELS = np.arange(1024).reshape(32, 32) // 256


@pytest.mark.parametrize("case", MASKED_INPUTS)
def test_masked_arrays_are_refused_wherever_arrays_come_in(case):
    with pytest.raises(HshapError, match=FILLED):
        MASKED_INPUTS[case]()


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


def test_tables_with_missing_values_are_refused():
    pandas = pytest.importorskip("pandas")
    xarray = pytest.importorskip("xarray")
    table = pandas.DataFrame(IMAGE[0]).astype("Float32")
    table.iloc[3, 4] = pandas.NA
    whole = xarray.DataArray(np.ma.masked_greater(IMAGE, 0.5), dims=("c", "y", "x"))
    for image in (table, pandas.DataFrame(IMAGE[0]).replace(0.0, np.nan)):
        with pytest.raises(ArgumentError, match=r"type object|not finite"):
            made_now().explain(image, target=0, layout="YX")
    with pytest.raises(ArgumentError, match="not finite"):
        explain(whole)


def odd_tensors():
    torch = pytest.importorskip("torch")
    plain = torch.from_numpy(IMAGE)
    with warnings.catch_warnings():  # of torch: some of these are prototypes
        warnings.simplefilter("ignore")
        masked = torch.masked.masked_tensor(plain, plain < 0.5)
        compressed = plain[0].to_sparse_csr()
        quantised = torch.quantize_per_tensor(plain, 0.1, 0, torch.quint8)
    return {
        "masked": (masked, r"\.to_tensor\(value\)"),
        "sparse": (plain.to_sparse(), r"\.to_dense\(\)"),
        "compressed": (compressed, r"\.to_dense\(\)"),
        "quantised": (quantised, r"\.dequantize\(\)"),
        "meta": (plain.to("meta"), "holds no values"),
        "complex": (plain.to(torch.complex64), "complex64"),
    }


@pytest.mark.parametrize("case", ["masked", "sparse", "compressed", "quantised", "meta", "complex"])
def test_tensors_that_are_not_plain_numbers_are_refused(case):
    value, told = odd_tensors()[case]
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


def test_there_are_many_such_cases():
    assert len(CASES) >= 40


def test_an_unknown_option_is_a_type_error_as_everywhere_in_python():
    with pytest.raises(TypeError):
        Dyadic(min_side=4)
    assert issubclass(UnknownOptionError, TypeError)
    assert issubclass(ArgumentError, ValueError)


def test_a_missing_extra_names_its_command():
    from hshap.errors import MissingExtraError, require

    with pytest.raises(MissingExtraError, match=r"x needs not_there: pip install matplotlib"):
        require("not_there.at_all", extra="plot", needed_by="x")
