"""The traffic lights: their reader on a tiny copy, and the training of ResNet-18 on it."""

from __future__ import annotations

import contextlib
import io
import json
from collections import Counter

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("PIL")
pytest.importorskip("safetensors")

from PIL import Image
from safetensors.torch import save_file

import hshap
from benchmarks.core import folders
from benchmarks.core.protocol import Example
from benchmarks.datasets import traffic, traffic_tiny
from benchmarks.datasets.traffic import Traffic
from benchmarks.models import resnet
from benchmarks.models.resnet import load_imagenet, resnet18
from benchmarks.training import transfer
from benchmarks.training.judge import judge
from benchmarks.training.packed import packed
from benchmarks.training.transfer import PAPER, PAPER_MULTI_LABEL

SPLITS = ("training", "validation", "test")
HEADER = (
    "Filename",
    "Annotation tag",
    "Upper left corner X",
    "Upper left corner Y",
    "Lower right corner X",
    "Lower right corner Y",
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    root = tmp_path_factory.mktemp("tiny")
    traffic_tiny.write_tiny(root / "lisa", clips=2, frames=4, seed=0)
    return root


@pytest.fixture
def data(tiny, monkeypatch):
    monkeypatch.setenv(folders.VARIABLE, str(tiny))
    return tiny / "lisa"


@pytest.fixture
def apart(tmp_path, monkeypatch):
    """Keep what a run writes out of the repository."""
    monkeypatch.setattr(folders, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(folders, "RESULTS", tmp_path)
    return tmp_path


@pytest.fixture
def narrow(monkeypatch):
    """Give the network an eighth of its width, since most of the time goes into its weights."""
    monkeypatch.setattr(resnet, "WIDTHS", (8, 16, 32, 64))


def write_frame(root, rows, monkeypatch, separator=";"):
    """Write one test frame of 40 x 60 pixels and rows (tag, left, top, right, bottom)."""
    monkeypatch.setenv(folders.VARIABLE, str(root))
    for name in traffic.TEST:
        frames = root / "lisa" / name / "frames"
        frames.mkdir(parents=True)
        pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(frames / f"{name}--00007.jpg")
        table = [HEADER, *((f"dayTest/{name}--00007.jpg", *row) for row in rows)]
        boxes = root / "lisa" / "Annotations" / name / traffic.BOXES
        boxes.parent.mkdir(parents=True)
        boxes.write_text("".join(separator.join(map(str, row)) + "\n" for row in table))


def everything(dataset):
    return [example for split in SPLITS for example in dataset.examples(split)]


def is_green(image):
    red, green, blue = image
    return (green > red + 0.4) & (green > blue + 0.2)


@pytest.mark.parametrize("doubled", [True, False])
@pytest.mark.parametrize("separator", [";", ","])
def test_every_style_of_copy_reads_the_same(data, tmp_path, monkeypatch, doubled, separator):
    expected = everything(Traffic())
    traffic_tiny.write_tiny(
        tmp_path / "lisa", clips=2, frames=4, seed=0, doubled=doubled, separator=separator
    )
    monkeypatch.setenv(folders.VARIABLE, str(tmp_path))
    found = everything(Traffic())
    assert [(one.name, one.objects) for one in found] == [
        (one.name, one.objects) for one in expected
    ]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.image, other.image)


def test_a_frame_is_positive_exactly_where_green_is_seen(data):
    examples = everything(Traffic())
    labels = [example.label("go") for example in examples]
    assert 0 < sum(labels) < len(labels)
    assert labels == [bool(is_green(example.image).any()) for example in examples]


def test_truth_covers_the_green_and_is_the_filled_boxes(data):
    for example in everything(Traffic()):
        truth, green = example.truths["go"], is_green(example.image)
        assert not (green & ~truth).any()
        sides = [np.subtract(*box[::-1]) for box in example.objects["go"]]
        assert truth.sum() == sum(map(np.prod, sides))  # boxes of the tiny copy lie apart


def test_images_are_rgb_floats_from_0_to_1(data):
    image = next(Traffic().examples("test")).image
    assert image.dtype == np.float32
    assert image.shape == (3, traffic_tiny.HEIGHT, traffic_tiny.WIDTH)
    assert image.min() >= 0
    assert 0.5 < image.max() <= 1


def test_splits_hold_whole_clips_of_the_day(data):
    groups = [Counter(example.group for example in Traffic().examples(split)) for split in SPLITS]
    assert groups == [
        {"dayClip1": 4, "dayClip2": 4},
        {"dayClip12": 4, "dayClip13": 4},
        {"daySequence1": 4, "daySequence2": 4},
    ]


@pytest.mark.parametrize(
    ("tag", "positive"),
    [
        ("go", True),
        ("goForward", True),
        ("goLeft", True),
        ("stop", False),
        ("stopLeft", False),
        ("warning", False),
        ("warningLeft", False),
    ],
)
def test_green_tags_alone_make_a_positive(tmp_path, monkeypatch, tag, positive):
    write_frame(tmp_path, [(tag, 4, 8, 20, 30)], monkeypatch)
    assert [one.label("go") for one in Traffic().examples("test")] == [positive] * 2


def test_a_frame_without_a_row_is_a_negative(tmp_path, monkeypatch):
    write_frame(tmp_path, [], monkeypatch)
    example = next(Traffic().examples("test"))
    assert not example.label("go")
    assert not example.truths["go"].any()


@pytest.mark.parametrize(
    ("factor", "row", "box"),
    [
        (1, (4, 8, 20, 30), ((8, 4), (30, 20))),
        (4, (4, 8, 20, 32), ((2, 1), (8, 5))),
        (4, (5, 9, 19, 30), ((2, 1), (8, 5))),  # every block that it touches
        (1, (50, 30, 64, 45), ((30, 50), (40, 60))),  # over the edge
        (1, (7, 9, 7, 9), ((9, 7), (10, 8))),  # no area
        (4, (5.0, 9.0, 19.0, 30.0), ((2, 1), (8, 5))),  # through a spreadsheet
    ],
)
def test_boxes_are_rows_and_columns_of_the_averaged_frame(tmp_path, monkeypatch, factor, row, box):
    write_frame(tmp_path, [("stop", 0, 0, 9, 9), ("go", *row)], monkeypatch)
    example = next(Traffic(factor).examples("test"))
    assert example.objects == {"go": (box,)}
    expected = np.zeros((40 // factor, 60 // factor), dtype=bool)
    expected[box[0][0] : box[1][0], box[0][1] : box[1][1]] = True
    np.testing.assert_array_equal(example.truths["go"], expected)


def test_a_byte_order_mark_is_no_part_of_the_header(tmp_path, monkeypatch):
    write_frame(tmp_path, [("go", 4, 8, 20, 30)], monkeypatch, separator=",")
    for path in tmp_path.rglob("*.csv"):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert next(Traffic().examples("test")).label("go")


def test_frames_are_averaged_over_blocks(tmp_path, monkeypatch):
    write_frame(tmp_path, [], monkeypatch)
    whole, small = (next(Traffic(factor).examples("test")).image for factor in (1, 4))
    blocks = whole.reshape(3, 10, 4, 15, 4).astype(np.float64)
    np.testing.assert_allclose(small, blocks.mean(axis=(2, 4)), atol=1e-6)


def test_a_factor_that_does_not_divide_the_frame_is_refused(data):
    with pytest.raises(ValueError, match=r"factor=5 must divide the frame's 64 x 96"):
        next(Traffic(5).examples("test"))


def test_an_unknown_split_is_refused(data):
    with pytest.raises(ValueError, match="split='train' is not known"):
        next(Traffic().examples("train"))


def test_missing_data_is_told_with_its_source(tmp_path, monkeypatch):
    monkeypatch.setenv(folders.VARIABLE, str(tmp_path))
    with pytest.raises(folders.MissingDataError, match="mbornoe/lisa-traffic-light-dataset"):
        next(Traffic().examples("training"))
    with pytest.raises(SystemExit, match="Get it from"):
        transfer.main(["traffic"])


@pytest.mark.parametrize("split", SPLITS)
def test_annotations_without_frames_are_told(tmp_path, monkeypatch, split):
    monkeypatch.setenv(folders.VARIABLE, str(tmp_path))
    traffic_tiny.write_tiny(tmp_path / "annotated", clips=1, frames=1, seed=0)
    (tmp_path / "lisa").mkdir()
    (tmp_path / "annotated" / "Annotations").rename(tmp_path / "lisa" / "Annotations")
    with pytest.raises(folders.MissingDataError, match=r"no frames in .* not whole"):
        next(Traffic().examples(split))


def published(classes):
    torch.manual_seed(1)
    model = resnet18(classes).eval()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    return model


def test_resnet_agrees_with_torchvision_on_the_same_weights():
    # torchvision refuses to be imported beside a torch that it was not built for.
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float threshold) -> Tensor")
    models = pytest.importorskip(
        "torchvision.models",
        reason="torchvision is left out of the tests; install benchmarks/requirements.txt",
        exc_type=ImportError,
    )
    own, other = published(5), models.resnet18(num_classes=5).eval()
    shapes = [
        {name: value.shape for name, value in model.state_dict().items()} for model in (own, other)
    ]
    assert shapes[0] == shapes[1]
    other.load_state_dict(own.state_dict())
    images = torch.rand(2, 3, 75, 90)
    normal = (images - own.mean) / own.deviation
    with torch.no_grad():
        torch.testing.assert_close(own(images), other(normal), rtol=0, atol=1e-5)


def test_every_relu_runs_once_and_not_in_place():
    model, runs = resnet18(2).eval(), Counter()
    relus = [module for module in model.modules() if isinstance(module, torch.nn.ReLU)]
    for module in relus:
        module.register_forward_hook(lambda module, *_: runs.update([module]))
    model(torch.rand(1, 3, 33, 47))
    assert runs == dict.fromkeys(relus, 1)
    assert not any(module.inplace for module in relus)


def test_the_last_layer_still_has_places():
    model, seen = resnet18(2).eval(), []
    model.last.register_forward_hook(lambda *hooked: seen.append(hooked[-1].shape))
    model(torch.rand(1, 3, 64, 96))
    assert seen == [(1, 512, 2, 3)]


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_published_weights_load_but_for_another_number_of_classes(tmp_path, capsys, suffix):
    path, source = tmp_path / f"resnet18{suffix}", published(10).state_dict()
    # As in the oldest files.
    weights = {name: value for name, value in source.items() if "num_batches" not in name}
    (torch.save if suffix == ".pth" else save_file)(weights, path)
    model = resnet18(2)
    drawn = model.fc.weight.clone()
    load_imagenet(model, path)
    assert "tells 10 classes, not 2: fc stays as drawn" in capsys.readouterr().out
    assert torch.equal(model.fc.weight, drawn)
    assert torch.equal(model.layer4[1].bn2.running_var, source["layer4.1.bn2.running_var"])
    same = resnet18(10)
    load_imagenet(same, path)
    assert torch.equal(same.fc.weight, source["fc.weight"])
    assert not capsys.readouterr().out


def test_weights_of_another_network_are_refused_by_name(tmp_path):
    weights = resnet18(2).state_dict()
    weights["stem.weight"] = weights.pop("conv1.weight")
    weights["bn1.bias"] = torch.zeros(7)
    torch.save(weights, tmp_path / "other.pth")
    with pytest.raises(
        ValueError, match=r"lacks conv1.weight; has unknown stem.weight; has other.*bn1.bias"
    ):
        load_imagenet(resnet18(2), tmp_path / "other.pth")


def test_learning_rates_are_the_paper_s():
    rates = [PAPER.rate(epoch) for epoch in (1, 10, 11, 20, 21, 25)]
    np.testing.assert_allclose(rates, [1e-4, 1e-4, 2e-5, 2e-5, 4e-6, 4e-6])
    rates = [PAPER_MULTI_LABEL.rate(epoch) for epoch in (7, 8, 60)]
    np.testing.assert_allclose(rates, [1e-4, 0.7e-4, 0.7**8 * 1e-4])


def test_judge_agrees_with_scikit_learn(rng):
    measures = pytest.importorskip("sklearn.metrics")
    labels = rng.random(80) < 0.3
    scores = np.round(rng.normal(size=80) + labels, 1)  # with ties
    found = judge(scores, labels, seed=0)
    assert found["auc"] == pytest.approx(measures.roc_auc_score(labels, scores))
    assert found["accuracy"] == measures.accuracy_score(labels, scores > 0)
    assert found["correct"] == round(80 * found["accuracy"])
    assert (found["images"], found["positive"]) == (80, labels.sum())
    assert found["auc_95"][0] < found["auc"] < found["auc_95"][1]
    assert found["wilson_95"] == list(hshap.metrics.wilson(found["correct"], 80)[1:])
    assert found == judge(scores, labels, seed=0)


def test_judge_s_interval_covers_about_as_often_as_it_says(rng):
    # Hanley and McNeil's formula is independent of any resampling.
    labels = np.repeat([True, False], 100)
    found = judge(rng.normal(size=200) + labels, labels, seed=0)
    auc = found["auc"]
    double, pair = auc / (2 - auc), 2 * auc**2 / (1 + auc)
    variance = (auc * (1 - auc) + 99 * (double - auc**2) + 99 * (pair - auc**2)) / 100**2
    assert np.ptp(found["auc_95"]) == pytest.approx(2 * 1.96 * np.sqrt(variance), rel=0.15)


def test_judge_leaves_out_the_auc_of_a_single_class():
    found = judge([0.5, -0.5], [True, True], seed=0)
    assert (found["accuracy"], found["auc"], found["auc_95"]) == (0.5, None, None)
    json.dumps(found)


def test_packing_keeps_bytes_of_images_of_any_size(apart, rng):
    pixels = [rng.integers(0, 256, (3, *grid), dtype=np.uint8) for grid in ((4, 6), (5, 3), (4, 6))]
    examples = [example_of(one / np.float32(255), cell=bool(i % 2)) for i, one in enumerate(pixels)]
    with packed(examples, ["cell"]) as found:
        for row, one in enumerate(pixels):
            np.testing.assert_array_equal(found.image(row), one / np.float32(255))
        assert found.labels.tolist() == [[False], [True], [False]]
    assert not list((apart / "cache").rglob("*.tmp*"))


def test_an_empty_split_is_refused(apart):
    with pytest.raises(ValueError, match="no images"), packed([], ["go"]):
        pass


def test_logits_keep_the_order_of_images_of_several_sizes(narrow, rng):
    model = published(2)
    images = [rng.random((3, *grid), np.float32) for grid in ((40, 48), (48, 40), (40, 48))]
    with torch.no_grad():
        alone = torch.cat([model(torch.from_numpy(image)[None]) for image in images])
        torch.testing.assert_close(transfer.logits(model, images), alone, atol=1e-5, rtol=0)


def test_traffic_is_trained_judged_and_explained_by_one_command(data, apart, capsys):
    save_file(published(10).state_dict(), apart / "imagenet.safetensors")
    words = ["--epochs", "1", "--batch-size", "4", "--imagenet"]
    transfer.main(["traffic", *words, str(apart / "imagenet.safetensors")])
    told = capsys.readouterr().out
    assert "training: 8 images" in told
    assert "epoch   1 of 1" in told
    figures = json.loads((apart / "train_traffic_resnet18.json").read_text())
    assert figures["started_from"] == "ImageNet"
    assert figures["splits"]["test"]["go"]["images"] == 8
    assert str(transfer.weights_path("traffic")) in told

    model = transfer.trained_model("traffic")
    example = next(one for one in Traffic().examples("test") if one.label("go"))
    mean = np.mean([one.image for one in Traffic().examples("training")], axis=0)
    explainer = hshap.Explainer(
        model, baseline=hshap.Fixed(mean), partition=hshap.Dyadic(min_size=32)
    )
    found = explainer.explain(example.image, target=1)
    assert found.evaluations > 1
    assert 0 <= hshap.metrics.roc_auc(found.saliency(), example.truths["go"]) <= 1


def test_a_model_that_sees_green_is_explained_by_the_true_boxes(data):
    example = next(one for one in Traffic().examples("test") if one.label("go"))
    explainer = hshap.Explainer(
        lambda batch: np.array([is_green(image).any() for image in batch], float),
        baseline=hshap.Constant(0.5),
        partition=hshap.Dyadic(min_size=2),
    )
    found = explainer.explain(example.image, target=0).saliency() > 0
    assert found.any()
    assert hshap.metrics.precision(found.astype(float), example.truths["go"]) > 0.8


def test_an_interrupted_run_continues_as_if_it_had_not_been(data, apart, narrow, monkeypatch):
    # A decay after each epoch: a resumed run must not start over with the first rate.
    settings = transfer.Settings(epochs=2, decay_every=1, batch_size=4)
    whole = transfer.run(Traffic(2), settings)
    expected = transfer.trained_model("traffic").state_dict()

    monkeypatch.setattr(folders, "CACHE", apart / "other")

    class Impatient(io.StringIO):
        """A screen before which somebody presses Ctrl-C once the first epoch is reported."""

        def write(self, text):
            if text.startswith("epoch"):
                raise KeyboardInterrupt
            return len(text)

    with contextlib.redirect_stdout(Impatient()), pytest.raises(KeyboardInterrupt):
        transfer.run(Traffic(2), settings)
    resumed = transfer.run(Traffic(2), settings)
    assert resumed["history"] == whole["history"]
    assert resumed["splits"] == whole["splits"]
    for name, value in transfer.trained_model("traffic").state_dict().items():
        assert torch.equal(value, expected[name]), name


def test_weights_that_are_not_there_are_told_with_the_command(apart):
    with pytest.raises(folders.MissingDataError, match=r"benchmarks.training.transfer traffic"):
        transfer.trained_model("traffic")


def example_of(image, **cells):
    objects = {name: (((0, 0), (1, 1)),) if there else () for name, there in cells.items()}
    return Example("cell", np.float32(image), objects, {})


class Cells:
    """Two concepts in images of two sizes."""

    name = "cells"
    concepts = ("ring", "trophozoite")

    def __repr__(self):
        return "Cells()"

    def examples(self, split):
        rng = np.random.default_rng(SPLITS.index(split))
        for number in range(6):
            grid = (40, 48) if number % 3 else (48, 40)
            labels = {"ring": number % 2 == 0, "trophozoite": number < 2}
            yield example_of(rng.random((3, *grid)), **labels)


def test_all_concepts_are_learnt_at_once_with_multi_label(apart, narrow):
    figures = transfer.run(Cells(), transfer.replace(PAPER_MULTI_LABEL, epochs=1, batch_size=3))
    judged = figures["splits"]["test"]
    assert {name: one["positive"] for name, one in judged.items()} == {"ring": 3, "trophozoite": 2}
    assert figures["started_from"] == "scratch"
    model = transfer.trained_model("cells", classes=2, settings=PAPER_MULTI_LABEL)
    assert model.fc.out_features == 2
