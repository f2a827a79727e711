"""Models as they come: an adapter's scores are those of the library's own steps.

Stand-ins have the fields that timm and torchvision document. Other libraries themselves are in
test_models_of_libraries.py.
"""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import numpy as np
import pytest

import hshap
from hshap import ArgumentError, Constant, Dyadic, Explainer

torch = pytest.importorskip("torch")
from full_passes import explained_alike

PHOTO = (127 + 100 * np.sin(np.mgrid[:44, :60][0] / 7)[..., None] * np.ones(3)).astype(np.uint8)
NOISE = np.random.default_rng(3).integers(64, 192, (44, 60, 3), dtype=np.uint8)
"""Not up to black and white: how pillow cuts overshoots off depends on its version."""


@pytest.fixture
def note(support):
    """Return a function that notes a row of the table of models in docs/support.md."""

    def note(kind, library, checked, apart):
        support("models", kind=kind, library=library, checked=checked, difference=apart)

    return note


def plain(image):
    """Return bytes (height, width, channels) as hshap's own batch of one."""
    return torch.as_tensor(np.moveaxis(image, -1, 0)[None] / 255.0).float()


def largest(one, other):
    return float(np.abs(np.asarray(one) - np.asarray(other)).max())


class Colours(torch.nn.Module):
    """The largest value of each channel, after a convolution that changes nothing."""

    def __init__(self):
        super().__init__()
        self.same = torch.nn.Conv2d(3, 3, 1, bias=False)
        self.same.weight.data = torch.eye(3)[:, :, None, None]

    def forward(self, images):
        return self.same(images).amax((2, 3))


# Preparation: sizes, crops, means

TIMM = {
    "input_size": (3, 32, 32),
    "mean": (0.485, 0.456, 0.406),
    "std": (0.229, 0.224, 0.225),
    "interpolation": "bicubic",
    "crop_pct": 0.9,
    "label_names": ["red", "green", "blue"],
}


def pillow_timm(image, *, squash=False):
    """Resize, crop and normalise as timm's evaluation transform does, by pillow alone."""
    from PIL import Image

    side = int(32 / 0.9)
    height, width = image.shape[:2]
    short = min(height, width)
    size = (side, side) if squash else (int(side * width / short), int(side * height / short))
    made = np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BICUBIC))
    top, left = (round((n - 32) / 2) for n in made.shape[:2])
    crop = made[top : top + 32, left : left + 32] / 255.0
    return np.moveaxis((crop - TIMM["mean"]) / TIMM["std"], -1, 0)


@pytest.mark.parametrize("mode", ["center", "squash"])
def test_a_timm_config_prepares_as_timm_does(mode, note):
    net = torch.nn.Identity().eval()
    net.pretrained_cfg = {**TIMM, "crop_mode": mode}
    ready = hshap.models.timm(net)
    apart = largest(ready(plain(NOISE))[0], pillow_timm(NOISE, squash=mode == "squash"))
    note(
        f"timm config, crop_mode={mode} (stand-in with its fields)",
        "pillow",
        "inputs against pillow's steps, which round to bytes",
        apart,
    )
    assert apart < 1.6 / 255 / 0.224
    assert ready.facts.classes == ("red", "green", "blue")


def test_torchvision_weights_prepare_as_their_transforms_tell(note):
    preset = SimpleNamespace(
        resize_size=[35],
        crop_size=[32],
        mean=list(TIMM["mean"]),
        std=list(TIMM["std"]),
        interpolation=SimpleNamespace(value="bicubic"),
        antialias=True,
    )
    weights = SimpleNamespace(transforms=lambda: preset, meta={"categories": list("abc")})
    ready = hshap.models.torchvision(torch.nn.Identity().eval(), weights)
    apart = largest(ready(plain(NOISE))[0], pillow_timm(NOISE))
    note(
        "torchvision weights (stand-in with their fields)",
        "pillow",
        "inputs against pillow's steps, which round to bytes",
        apart,
    )
    assert apart < 1.6 / 255 / 0.224
    assert ready.facts.classes == ("a", "b", "c")


def test_a_prepared_model_is_a_model_like_others():
    """Behind its preparation, `Incremental` finds the network; the user's module stays as it is."""
    torch.manual_seed(0)
    layers = torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Conv2d(4, 4, 3)
    net = torch.nn.Sequential(*layers, torch.nn.AdaptiveMaxPool2d(1), torch.nn.Flatten()).eval()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    ready = hshap.models.prepared(net, hshap.models.Preparation(mean=0.5, std=0.25))
    assert explained_alike(ready, (3, 48, 52), 0, channels_last=False).incremental > 0
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    again = pickle.loads(pickle.dumps(ready))  # noqa: S301, its own
    assert torch.equal(again(plain(NOISE)), ready(plain(NOISE)))
    assert again.facts == ready.facts
    with pytest.raises(ArgumentError, match="training mode"):
        Explainer(hshap.models.prepared(net.train(), hshap.models.Preparation()))


# ONNX


def onnx_session(entries, *, last=False):
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    shape = ["n", 8, 9, 3] if last else ["n", 3, 8, 9]
    ends = [
        helper.make_tensor_value_info("image", kind, shape),
        helper.make_tensor_value_info("scores", kind, ["n", 3]),
    ]
    axes = [1, 2] if last else [2, 3]
    node = helper.make_node("ReduceMean", ["image"], ["scores"], axes=axes, keepdims=0)
    graph = helper.make_graph([node], "means", ends[:1], ends[1:])
    file = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(file, entries)
    return runtime.InferenceSession(file.SerializeToString())


MEAN_STD = {"image_mean": "[0.5, 0.4, 0.3]", "image_std": "[0.2, 0.2, 0.1]"}


@pytest.mark.parametrize(
    ("entries", "wanted"),
    [
        (MEAN_STD, lambda x: (x / 255 - [0.5, 0.4, 0.3]) / [0.2, 0.2, 0.1]),
        ({"mean": "120", "std": "60"}, lambda x: (x - 120) / 60),
        ({"rescale_factor": "0.00392156862745098"}, lambda x: x / 255),
        ({"Image.NominalPixelRange": "NominalRange_0_255"}, lambda x: x),
        ({"Image.NominalPixelRange": "Normalized_1_1"}, lambda x: x / 127.5 - 1),
    ],
)
@pytest.mark.parametrize("last", [False, True])
def test_an_onnx_file_says_how_pixels_are_scaled(entries, wanted, last, note):
    session = onnx_session({**entries, "id2label": '{"0": "a", "1": "b", "2": "c"}'}, last=last)
    model = hshap.models.onnx(session)
    image = NOISE[:8, :9]
    found = Explainer(model, Constant(0.0), Dyadic(8)).explain(image, target="b")
    own = wanted(image.astype(float)).mean((0, 1))[1]
    note(
        "session with metadata_props",
        "onnxruntime",
        "score against the mean of pixels scaled by hand",
        abs(found.score - own) / max(1.0, abs(own)),
    )
    assert found.score == pytest.approx(own, rel=1e-5, abs=1e-5)
    assert found.class_name == "b"


# Functions in their own order of axes


def test_a_function_gets_pictures_with_channels_last():
    def green(pictures):
        return pictures.reshape(len(pictures), -1)[:, (2 * 5 + 3) * 3 + 1]  # row 2, column 3

    picture = np.random.default_rng(0).random((4, 5, 3))
    explainer = Explainer(hshap.models.function(green), Constant(0.0), Dyadic(1))
    found = explainer.explain(picture, target=0, layout="HWC")
    assert found.score == pytest.approx(picture[2, 3, 1])
    assert found.leaves == (hshap.protocols.Box((2, 3), (3, 4)),)


# Detectors and segmenters


class BrightBoxes(torch.nn.Module):
    """A detector in the shape of torchvision's: the box of bright red, and that of bright green."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, images):
        return [self.one(image) for image in images]

    def one(self, image):
        boxes, labels = [], []
        for channel in (0, 1):
            rows, columns = torch.nonzero(image[channel] > 0.5, as_tuple=True)
            if len(rows):
                sides = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
                boxes.append([float(side) for side in sides])
                labels.append(channel + 1)
        return {
            "boxes": torch.tensor(boxes).reshape(-1, 4),
            "labels": torch.tensor(labels, dtype=torch.long),
            "scores": torch.full((len(boxes),), 0.9) * self.weight,
        }


def boxes_image():
    image = np.zeros((3, 32, 32), np.float32)
    image[0, 4:8, 8:12] = 1.0
    image[1, 20:28, 16:20] = 1.0
    return image


def test_a_box_of_a_detector_is_explained(note):
    net, image = BrightBoxes().eval(), boxes_image()
    found = hshap.models.detections(net, image)
    assert [one.box for one in found] == [(8, 4, 12, 8), (16, 20, 20, 28)]
    model = hshap.models.detector(net, found)
    first, second = Explainer(model, Constant(0.0), Dyadic(4)).explain(image, target=[0, 1])
    assert first.leaves == (hshap.protocols.Box((4, 8), (8, 12)),)
    assert second.coefficients().any(axis=0).nonzero()[0].tolist() == [16, 17, 18, 19]
    assert first.class_name == "class 1 at (8, 4, 12, 8)"
    note(
        "detector (list of dicts: boxes, scores, labels)",
        "torch",
        "score of a box found again against its class score",
        abs(first.score - 0.9),
    )
    assert first.score == pytest.approx(0.9, abs=1e-6)

    def function(batch):
        made = net(torch.as_tensor(batch))
        return [{key: value.detach().numpy() for key, value in one.items()} for one in made]

    assert [one.box for one in hshap.models.detections(function, image)] == [o.box for o in found]
    again = Explainer(hshap.models.detector(function, found), Constant(0.0), Dyadic(4))
    assert np.allclose(again.explain(image, target=1).saliency(), second.saliency())


class TwoMaps(torch.nn.Module):
    """A segmenter: logits at half of the resolution, of dark and of bright."""

    def __init__(self, entry):
        super().__init__()
        self.entry, self.pool = entry, torch.nn.AvgPool2d(2)

    def forward(self, images):
        bright = self.pool(images.mean(1, keepdim=True)) * 8 - 4
        logits = torch.cat([-bright, bright], 1)
        if self.entry == "logits":
            return SimpleNamespace(logits=logits)
        return {"out": logits, "aux": 0 * logits} if self.entry else logits


@pytest.mark.parametrize("entry", ["", "logits", "out"])
def test_the_score_of_a_region_is_the_mean_probability_in_it(entry, note):
    net, image = TwoMaps(entry).eval(), np.zeros((3, 32, 32), np.float32)
    image[:, 8:16, 16:24] = 1.0
    region = hshap.models.segments(net, image) == 1
    assert region[9:15, 17:23].all()
    assert region.sum() < 110
    model = hshap.models.segmenter(net, region)
    found = Explainer(model, Constant(0.0), Dyadic(8)).explain(image, target=1)
    logits = net(torch.as_tensor(image)[None])
    logits = getattr(logits, "logits", logits["out"] if entry == "out" else logits)
    large = torch.nn.functional.interpolate(logits, (32, 32), mode="bilinear").softmax(1)
    own = float(large[0, 1][torch.as_tensor(region)].mean())
    note(
        "segmenter (logits of a class map)",
        "torch",
        "score against the mean probability in the region",
        abs(found.score - own),
    )
    assert found.score == pytest.approx(own, abs=1e-6)
    assert found.leaves == (hshap.protocols.Box((8, 16), (16, 24)),)

    def logits_of(batch):
        made = net(torch.as_tensor(batch))
        return (made["out"] if isinstance(made, dict) else getattr(made, "logits", made)).numpy()

    function = hshap.models.segmenter(logits_of, region)
    again = Explainer(function, Constant(0.0), Dyadic(8)).explain(image, target=1)
    assert again.leaves == found.leaves
    assert again.score == pytest.approx(found.score, abs=1e-6)


# Reading images


def test_tests_and_spins_read_images_alike():
    explainer = Explainer(
        hshap.models.prepared(Colours().eval(), hshap.models.Preparation(), names=list("rgb")),
        hshap.References(np.zeros((3, 3, 16, 16), np.float32)),
        Dyadic(4),
    )
    picture = np.zeros((16, 16, 3), np.uint8)
    picture[4:8, 4:8, 1] = 255
    found = explainer.explain(picture, target="g")
    assert explainer.test(found, picture).tests is not None
    spun = hshap.cycle_spin(explainer, picture, "g", shifts=[0, 1])
    assert spun.saliency()[5, 5] > 0
    (many,) = explainer.explain_many([(picture, "g")])
    assert many.leaves == found.leaves


def test_the_command_line_takes_a_prepared_model_and_its_names(tmp_path, monkeypatch):
    from PIL import Image

    from hshap.__main__ import main

    pytest.importorskip("typer")
    code = (
        "import hshap, torch\n"
        "net = torch.nn.Sequential(torch.nn.AdaptiveMaxPool2d(1), torch.nn.Flatten()).eval()\n"
        "steps = hshap.models.Preparation(resize=16, crop=16, mean=0.5, std=0.5)\n"
        "model = hshap.models.prepared(net, steps, names=['red', 'green', 'blue'])\n"
    )
    (tmp_path / "prepared_net.py").write_text(code, encoding="utf-8")
    picture = np.zeros((20, 24, 3), np.uint8)
    picture[4:10, 8:14, 1] = 255
    Image.fromarray(picture).save(tmp_path / "a.png")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    command = ["explain", "a.png", "--model", "prepared_net:model", "--target", "green"]
    monkeypatch.setattr("sys.argv", ["hshap", *command, "--out", "out"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    (file,) = (tmp_path / "out").glob("*.npz")
    found = hshap.Explanation.load(file)
    assert (found.class_name, found.class_index, found.grid) == ("green", 1, (20, 24))
    assert found.saliency()[6, 10] > 0


class Described(torch.nn.Module):
    """A network with the config of transformers: names of classes."""

    def __init__(self, **names):
        super().__init__()
        self.config = SimpleNamespace(id2label=dict(enumerate(names.values())))
        self.pool = torch.nn.AdaptiveMaxPool2d(1)

    def forward(self, images):
        return self.pool(images).flatten(1)


def test_names_of_a_config_are_targets_unless_they_are_placeholders():
    picture = np.zeros((3, 16, 16), np.float32)
    picture[1, :8] = 1.0
    explainer = Explainer(Described(a="cat", b="dog", c="bird").eval(), Constant(0.0), Dyadic(8))
    found = explainer.explain(picture, target="dog")
    assert (found.class_index, found.class_name) == (1, "dog")
    assert "target 1 (dog)" in repr(found)
    placeholders = Described(a="LABEL_0", b="LABEL_1", c="LABEL_2").eval()
    with pytest.raises(ArgumentError, match="target"):
        Explainer(placeholders, Constant(0.0), Dyadic(8)).explain(picture, target="LABEL_1")


def explained(picture, target="green", names=("red", "green", "blue")):
    """Explain a picture by a model that takes three channels."""
    ready = hshap.models.prepared(Colours().eval(), hshap.models.Preparation(), names=list(names))
    return Explainer(ready, Constant(0.0), Dyadic(4)).explain(picture, target=target)


@pytest.mark.parametrize(
    ("picture", "said"),
    [
        (np.zeros((3, 9, 3), np.float32), "in which channels may come first or last"),
        (np.zeros((2, 3, 8, 8), np.float32), "takes one picture; pass image[0]"),
        (np.zeros((8, 9, 4), np.float32), "takes 3 channels; pass image[..., :3]"),
        (np.full((3, 8, 9), 200.0), "divide it by 255"),
        (np.full((3, 8, 9), -2.0), "before it is normalised"),
        (np.zeros((3, 8, 9), np.int64), "holds int64 numbers"),
        (np.zeros((0, 8, 3)), "pass numbers"),
    ],
)
def test_a_picture_that_a_prepared_model_cannot_take_is_told(picture, said):
    with pytest.raises(ArgumentError) as caught:
        explained(picture)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_name_that_is_no_class_is_told():
    picture = np.zeros((3, 8, 9), np.float32)
    with pytest.raises(ArgumentError, match=r"no class of the model; did you mean 'green'\?"):
        explained(picture, "grene")
    with pytest.raises(ArgumentError, match=r"is the name of outputs \[0, 2\]"):
        explained(picture, "red", names=("red", "green", "red"))
    with pytest.raises(hshap.ModelError, match="the number of class names is 2"):
        explained(picture, "red", names=("red", "green"))


@pytest.mark.parametrize(("shape", "layout"), [((8, 9, 3), "HWC"), ((3, 8, 9), "CHW")])
def test_a_prepared_model_finds_the_order_of_axes(shape, layout):
    ready = hshap.models.prepared(Colours().eval(), hshap.models.Preparation(), names=list("rgb"))
    picture = np.random.default_rng(0).random(shape).astype(np.float32)
    first = np.moveaxis(picture, -1, 0) if layout == "HWC" else picture
    found = Explainer(ready, Constant(0.0), Dyadic(4)).explain(picture, target="g")
    assert found.grid == first.shape[1:]
    assert found.score == pytest.approx(float(first[1].max()))


def test_similarity_is_the_overlap_times_the_score_of_the_class():
    """By counting pixels of masks, for boxes on whole pixels."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        corners = rng.integers(0, 12, (6, 2))
        boxes = np.hstack([corners, corners + rng.integers(1, 8, (6, 2))])
        scores, labels = rng.random(5), rng.integers(0, 2, 5)
        masks = np.zeros((6, 20, 20), bool)
        for mask, (left, top, right, bottom) in zip(masks, boxes, strict=True):
            mask[top:bottom, left:right] = True
        ious = [(m & masks[5]).sum() / (m | masks[5]).sum() for m in masks[:5]]
        expected = max(i * s * (k == 1) for i, s, k in zip(ious, scores, labels, strict=True))
        made = {"boxes": boxes[:5].astype(float), "scores": scores, "labels": labels}
        wanted = hshap.models.Detection(tuple(boxes[5]), label=1)
        tensors = {name: torch.as_tensor(one) for name, one in made.items()}
        for one in (made, tensors):
            model = hshap.models.detector(lambda batch, one=one: [one] * len(batch), [wanted])
            assert float(np.asarray(model(np.zeros((1, 3, 20, 20))))[0, 0]) == pytest.approx(
                expected
            )


def test_a_label_that_a_detector_lacks_is_refused_by_its_number():
    class Query(torch.nn.Module):
        """A detector of the DETR family: one box, two classes and no object."""

        config = SimpleNamespace(num_labels=2, id2label={})

        def forward(self, images):
            rows = len(images)
            logits = torch.tensor([[[0.1, 3.0, 0.0]]]).expand(rows, 1, 3)
            return SimpleNamespace(logits=logits, pred_boxes=torch.full((rows, 1, 4), 0.5))

    image = boxes_image()
    (only,) = hshap.models.detections(Query().eval(), image, least=0.0)
    assert only.label == 1
    other = hshap.models.Detection(only.box, label=9)
    with pytest.raises(ArgumentError, match=r"label=9 is no class.*pass 0 to 1"):
        Explainer(hshap.models.detector(Query().eval(), [other])).explain(image, target=0)
