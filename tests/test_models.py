"""Models as they come: each library's own call is the oracle for the adapter's scores.

Networks are small and have random weights. timm and torchvision are not imported: stand-ins have
the fields that these libraries document.
"""

from __future__ import annotations

import os
import pickle
from types import SimpleNamespace

import numpy as np
import pytest

import hshap
from hshap import ArgumentError, Constant, Dyadic, Explainer
from hshap.evaluators.models.detectors import Candidates, similarity
from hshap.evaluators.models.facts import Intake, facts_of

os.environ.setdefault("KERAS_BACKEND", "torch")
torch = pytest.importorskip("torch")
library = pytest.importorskip("transformers")

PHOTO = (127 + 100 * np.sin(np.mgrid[:44, :60][0] / 7)[..., None] * np.ones(3)).astype(np.uint8)
NOISE = np.random.default_rng(3).integers(64, 192, (44, 60, 3), dtype=np.uint8)
"""Not up to black and white: how pillow cuts overshoots off depends on its version."""

NAMES = {0: "cat", 1: "dog", 2: "bird"}


def vit(**options):
    torch.manual_seed(0)
    config = library.ViTConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=32,
        patch_size=8,
        id2label=NAMES,
        **options,
    )
    return library.ViTForImageClassification(config).eval()


def vit_processor(**options):
    return library.ViTImageProcessorPil(**{"size": {"height": 32, "width": 32}, **options})


def plain(image):
    """Return bytes (height, width, channels) as hshap's own batch of one."""
    return torch.as_tensor(np.moveaxis(image, -1, 0)[None] / 255.0).float()


def own_logits(model, processor, image):
    with torch.no_grad():
        return model(**processor(images=image, return_tensors="pt")).logits[0].numpy()


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


SQUARE = {"height": 32, "width": 32}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("ViT", {"size": SQUARE}),
        ("ViT", {"size": {"height": 32, "width": 48}, "resample": 3}),
        (
            "ViT",
            {
                "size": SQUARE,
                "do_rescale": False,
                "image_mean": [128.0] * 3,
                "image_std": [64.0] * 3,
            },
        ),
        ("ViT", {"size": SQUARE, "do_normalize": False}),
        ("CLIP", {"size": {"shortest_edge": 32}, "crop_size": SQUARE}),
        ("ConvNext", {"size": {"shortest_edge": 32}}),
        ("ConvNext", {"size": {"shortest_edge": 384}}),
        ("Detr", {"size": {"shortest_edge": 40, "longest_edge": 50}}),
        ("Segformer", {"size": {"height": 64, "width": 64}}),
        ("MobileNetV2", {}),
    ],
)
@pytest.mark.parametrize("shape", [(44, 60), (90, 37), (32, 32)], ids=str)
def test_inputs_are_those_of_the_processor_up_to_its_rounding_to_bytes(kind, options, shape):
    # Made here: processes that collect this test, and do not run it, need not import its class.
    processor = getattr(library, f"{kind}ImageProcessorPil")(**options)

    class Seen(torch.nn.Module):
        def forward(self, images):
            return images

    ready = hshap.models.transformers(Seen(), processor)
    image = np.random.default_rng(0).integers(64, 192, (*shape, 3), dtype=np.uint8)
    own = processor(images=image, return_tensors="np")["pixel_values"][0]
    spread = np.min(processor.image_std) if processor.do_normalize else 1.0
    unit = processor.rescale_factor if processor.do_rescale else 1.0
    # A byte is rounded after each of the two directions of a resize.
    assert largest(ready(plain(image))[0], own) < 1.6 * unit / spread


def test_scores_of_a_transformers_classifier_are_its_own(support):
    model, processor = vit(), vit_processor()
    ready = hshap.models.transformers(model, processor)
    same_size = PHOTO[:32, :32]
    with torch.no_grad():
        found = ready(plain(same_size)).logits[0]
    apart = largest(found, own_logits(model, processor, same_size))
    support(
        "models",
        kind="image classifier",
        library="transformers",
        checked="logits against the model with its own processor",
        difference=apart,
    )
    assert apart < 1e-5


def test_a_transformers_classifier_explains_the_photo_as_it_is():
    explainer = Explainer(hshap.models.transformers(vit(), vit_processor()))
    found = explainer.explain(PHOTO, target="dog")
    assert found.grid == (44, 60)
    assert found.target == found.class_index == 1
    assert found.class_name == "dog"
    assert "target 1 (dog)" in repr(found)
    assert "read as height x width x channels" in found.settings.chosen
    assert found.settings["preparation"].startswith("resized to 32 x 32")
    assert '"dog"' in found.view(PHOTO.transpose(2, 0, 1)).document


def test_bytes_and_floats_in_either_order_give_one_explanation():
    explainer = Explainer(
        hshap.models.transformers(vit(), vit_processor()), Constant(0.5), Dyadic(16)
    )
    floats = PHOTO.astype(np.float32) / 255
    pictures = [PHOTO, floats, np.moveaxis(PHOTO, -1, 0), np.moveaxis(floats, -1, 0)]
    maps = [explainer.explain(one, target=0).saliency() for one in pictures]
    assert all(np.array_equal(one, maps[0]) for one in maps)


def test_the_plain_module_knows_the_names_of_its_config():
    explainer = Explainer(vit(), Constant(0.0), Dyadic(16))
    image = np.zeros((3, 32, 32), np.float32)
    image[:, :16] = 1.0
    assert explainer.explain(image, target="bird").class_name == "bird"


def test_placeholders_of_a_config_are_no_names():
    config = library.ViTConfig(hidden_size=16, num_attention_heads=2, num_labels=3)
    assert facts_of(SimpleNamespace(config=config)).classes == ()


def test_multi_label_heads_take_a_sigmoid(support):
    model = vit(problem_type="multi_label_classification")
    processor = vit_processor()
    explainer = Explainer(hshap.models.transformers(model, processor), Constant(0.5), Dyadic(16))
    found = explainer.explain(PHOTO[:32, :32], target=hshap.Output(2, "sigmoid"))
    own = 1 / (1 + np.exp(-own_logits(model, processor, PHOTO[:32, :32])[2].astype(float)))
    support(
        "models",
        kind="multi-label head",
        library="transformers",
        checked="score against the sigmoid of the model's own logit",
        difference=abs(found.score - own),
    )
    assert found.score == pytest.approx(own, abs=1e-6)
    assert found.class_name == "bird"


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
def test_a_timm_config_prepares_as_timm_does(mode, support):
    net = torch.nn.Identity().eval()
    net.pretrained_cfg = {**TIMM, "crop_mode": mode}
    ready = hshap.models.timm(net)
    apart = largest(ready(plain(NOISE))[0], pillow_timm(NOISE, squash=mode == "squash"))
    support(
        "models",
        kind=f"timm config, crop_mode={mode} (stand-in with its fields)",
        library="pillow",
        checked="inputs against pillow's steps, which round to bytes",
        difference=apart,
    )
    assert apart < 1.6 / 255 / 0.224
    assert ready.facts.classes == ("red", "green", "blue")


def test_torchvision_weights_prepare_as_their_transforms_tell(support):
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
    support(
        "models",
        kind="torchvision weights (stand-in with their fields)",
        library="pillow",
        checked="inputs against pillow's steps, which round to bytes",
        difference=apart,
    )
    assert apart < 1.6 / 255 / 0.224
    assert ready.facts.classes == ("a", "b", "c")


def test_incremental_recomputes_patches_behind_the_preparation():
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Conv2d(4, 4, 3), Pooled()
    ).eval()
    ready = hshap.models.prepared(net, hshap.models.Preparation(mean=0.5, std=0.25))
    report = hshap.Incremental(ready).report((3, 64, 64))
    assert report.count("patch") >= 4, report
    picture = np.zeros((64, 64, 3), np.uint8)
    picture[8:16, 8:16] = 255
    parts = Constant(0.0), Dyadic(8)
    fast = Explainer(hshap.Incremental(ready), *parts).explain(picture, target=0)
    slow = Explainer(ready, *parts).explain(picture, target=0)
    assert fast.leaves == slow.leaves
    assert largest(fast.saliency(), slow.saliency()) < 1e-5


class Pooled(torch.nn.Module):
    def forward(self, images):
        return images.amax((2, 3))


def test_the_module_of_the_user_is_left_as_it_is():
    net = Colours().eval()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    hshap.models.prepared(net, hshap.models.Preparation(mean=0.5))
    assert not net.training
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    with pytest.raises(ArgumentError, match="training mode"):
        Explainer(hshap.models.prepared(net.train(), hshap.models.Preparation()))


def test_prepared_models_can_be_pickled():
    ready = hshap.models.prepared(Colours().eval(), hshap.models.Preparation(mean=0.5))
    again = pickle.loads(pickle.dumps(ready))  # noqa: S301, its own
    assert torch.equal(again(plain(NOISE)), ready(plain(NOISE)))
    assert again.facts == ready.facts


# scikit-learn


def digits():
    from sklearn.datasets import load_digits

    return load_digits()


def test_a_scikit_learn_pipeline_gives_its_own_probabilities(support):
    from sklearn.decomposition import PCA
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    data = digits()
    steps = make_pipeline(StandardScaler(), PCA(20), LogisticRegression(max_iter=300))
    fitted = steps.fit(data.data[:600], data.target[:600])
    image = data.images[700]
    explainer = Explainer(hshap.models.scikit_learn(fitted), Constant(0.0), Dyadic(2))
    found = explainer.explain(image, target=str(data.target[700]))
    own = fitted.predict_proba(image.reshape(1, -1))[0, data.target[700]]
    support(
        "models",
        kind="pipeline of an image classifier",
        library="scikit-learn",
        checked="score against predict_proba",
        difference=abs(found.score - own),
    )
    assert found.score == pytest.approx(own, abs=1e-6)
    assert found.class_name == str(data.target[700])


def test_colour_images_are_flattened_as_pictures_are():
    class Fitted:
        n_features_in_ = 4 * 5 * 3

        def predict(self, rows):
            return rows[:, (2 * 5 + 3) * 3 + 1]  # row 2, column 3, green

    picture = np.random.default_rng(0).random((4, 5, 3))
    model = hshap.models.scikit_learn(Fitted(), method="predict")
    found = Explainer(model, Constant(0.0), Dyadic(1)).explain(picture, target=0, layout="HWC")
    assert found.score == pytest.approx(picture[2, 3, 1])
    assert found.leaves == (hshap.Box((2, 3), (3, 4)),)


def test_a_regressor_is_explained_by_its_prediction(support):
    from sklearn.linear_model import Ridge

    data = digits()
    fitted = Ridge().fit(data.data[:300], data.images[:300, 3, 3])
    model = hshap.models.scikit_learn(fitted, method="predict")
    found = Explainer(model, Constant(0.0), Dyadic(1)).explain(data.images[400], target=0)
    own = fitted.predict(data.images[400].reshape(1, -1))[0]
    support(
        "models",
        kind="regressor",
        library="scikit-learn",
        checked="score against predict",
        difference=abs(found.score - own),
    )
    assert found.score == pytest.approx(own, abs=1e-5)


def test_a_decision_function_of_two_classes_has_one_named_output():
    from sklearn.svm import LinearSVC

    data = digits()
    two = data.target < 2
    fitted = LinearSVC().fit(data.data[two], np.array(["zero", "one"])[data.target[two]])
    model = hshap.models.scikit_learn(fitted, method="decision_function")
    assert model.facts.classes == ("zero",)  # classes_ are sorted: one, zero
    assert model(data.images[two][:4, None]).ravel() == pytest.approx(
        fitted.decision_function(data.data[two][:4])
    )


# Keras and JAX

KERAS = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
"""Keras copies tensors of torch in a way that a new NumPy warns of."""


def keras_model(keras):
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            keras.Input((16, 20, 3)),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Conv2D(4, 3, activation="relu"),
            keras.layers.Dropout(0.5),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(3),
        ]
    )


@KERAS
def test_a_keras_model_gives_its_own_scores(support):
    keras = pytest.importorskip("keras")
    net = keras_model(keras)
    image = NOISE[:16, :20]
    explainer = Explainer(hshap.models.keras(net, names=list("abc")), Constant(0.0), Dyadic(8))
    found = explainer.explain(image, target="c")
    own = net.predict(image[None].astype("float32"), verbose=0)[0, 2]
    support(
        "models",
        kind=f"image classifier on the {keras.config.backend()} backend",
        library="keras",
        checked="score against model.predict",
        difference=abs(found.score - own),
    )
    assert found.score == pytest.approx(own, abs=1e-5)
    other_way = explainer.explain(np.moveaxis(image, -1, 0), target="c")
    assert np.array_equal(found.saliency(), other_way.saliency())


@KERAS
def test_a_keras_model_of_one_size_refuses_another():
    keras = pytest.importorskip("keras")
    model = hshap.models.keras(keras_model(keras))
    image = np.zeros((3, 24, 20), np.float32)
    with pytest.raises(
        hshap.ArgumentError, match=r"takes inputs of \(16, 20, 3\), but the image is"
    ):
        Explainer(model, Constant(0.0), Dyadic(8)).explain(image, target=0)


@KERAS
def test_a_keras_model_on_jax_gives_the_same_explanation_as_on_torch(tmp_path, support):
    """The backend is fixed when Keras is imported, so the second one runs in its own process."""
    import subprocess
    import sys

    keras = pytest.importorskip("keras")
    pytest.importorskip("jax")
    net = keras_model(keras)
    net.save(tmp_path / "net.keras")
    np.save(tmp_path / "image.npy", NOISE[:16, :20])
    code = (
        "import keras, numpy as np, hshap\n"
        "assert keras.config.backend() == 'jax'\n"
        "made = hshap.models.keras(keras.saving.load_model('net.keras'))\n"
        "explainer = hshap.Explainer(made, hshap.Constant(0.0), hshap.Dyadic(8))\n"
        "np.save('map.npy', explainer.explain(np.load('image.npy'), target=1).attribution())\n"
    )
    env = {**os.environ, "KERAS_BACKEND": "jax"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(  # noqa: S603
        command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    here = Explainer(hshap.models.keras(net), Constant(0.0), Dyadic(8))
    expected = here.explain(NOISE[:16, :20], target=1).attribution()
    assert np.abs(expected).max() > 1e-4
    apart = largest(np.load(tmp_path / "map.npy"), expected)
    support(
        "models",
        kind="image classifier on the jax backend",
        library="keras",
        checked="map against the torch backend, same weights",
        difference=apart,
    )
    assert apart < 1e-5


def test_a_jax_function_is_compiled_for_few_sizes_and_gives_its_own_scores(support):
    jax = pytest.importorskip("jax")
    sizes = []

    @jax.jit
    def scores(batch):
        sizes.append(batch.shape)
        kernel = jax.numpy.arange(27.0).reshape(3, 3, 3, 1) / 27
        maps = jax.lax.conv_general_dilated(
            batch, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return maps.max(axis=(1, 2))

    image = np.zeros((32, 32, 3), np.float32)
    image[5:9, 20:24] = 1.0
    explainer = Explainer(hshap.models.jax(scores), Constant(0.0), Dyadic(4))
    found = explainer.explain(image, target=0)
    own = float(scores(image[None])[0, 0])
    support(
        "models",
        kind="function of batches (n, height, width, channels)",
        library="jax",
        checked="score against the function",
        difference=abs(found.score - own),
    )
    assert found.score == pytest.approx(own, abs=1e-6)
    assert found.saliency()[6, 21] > 0
    assert all(shape[0] in (1, 2, 4, 8, 16, 32) for shape in sizes)
    assert len(set(sizes)) == len(sizes) <= 6


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
def test_an_onnx_file_says_how_pixels_are_scaled(entries, wanted, last, support):
    session = onnx_session({**entries, "id2label": '{"0": "a", "1": "b", "2": "c"}'}, last=last)
    model = hshap.models.onnx(session)
    image = NOISE[:8, :9]
    found = Explainer(model, Constant(0.0), Dyadic(8)).explain(image, target="b")
    own = wanted(image.astype(float)).mean((0, 1))[1]
    support(
        "models",
        kind="session with metadata_props",
        library="onnxruntime",
        checked="score against the mean of pixels scaled by hand",
        difference=abs(found.score - own) / max(1.0, abs(own)),
    )
    assert found.score == pytest.approx(own, rel=1e-5, abs=1e-5)
    assert found.class_name == "b"


# Detectors


def test_similarity_is_the_largest_overlap_times_the_score_of_the_class():
    """By counting pixels of masks, for boxes on whole pixels."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        corners = rng.integers(0, 12, (6, 2))
        boxes = np.hstack([corners, corners + rng.integers(1, 8, (6, 2))])
        scores, labels = rng.random(5), rng.integers(0, 2, 5)
        masks = np.zeros((6, 20, 20), bool)
        for mask, (left, top, right, bottom) in zip(masks, boxes, strict=True):
            mask[top:bottom, left:right] = True
        wanted = hshap.models.Detection(tuple(boxes[5]), label=1)
        ious = [(m & masks[5]).sum() / (m | masks[5]).sum() for m in masks[:5]]
        expected = max(i * s * (k == 1) for i, s, k in zip(ious, scores, labels, strict=True))
        arrays = boxes[:5].astype(float), scores, labels
        tensors = [torch.as_tensor(one) for one in arrays]
        assert float(similarity(Candidates(*arrays), wanted)) == pytest.approx(expected)
        assert float(similarity(Candidates(*tensors), wanted)) == pytest.approx(expected)


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


def test_a_box_of_a_detector_is_explained(support):
    net, image = BrightBoxes().eval(), boxes_image()
    found = hshap.models.detections(net, image)
    assert [one.box for one in found] == [(8, 4, 12, 8), (16, 20, 20, 28)]
    model = hshap.models.detector(net, found)
    first, second = Explainer(model, Constant(0.0), Dyadic(4)).explain(image, target=[0, 1])
    assert first.leaves == (hshap.Box((4, 8), (8, 12)),)
    assert second.coefficients().any(axis=0).nonzero()[0].tolist() == [16, 17, 18, 19]
    assert first.class_name == "class 1 at (8, 4, 12, 8)"
    support(
        "models",
        kind="detector (list of dicts: boxes, scores, labels)",
        library="torch",
        checked="score of a box found again against its class score",
        difference=abs(first.score - 0.9),
    )
    assert first.score == pytest.approx(0.9, abs=1e-6)


def test_a_detector_that_is_a_function_gives_the_same_as_the_module():
    net, image = BrightBoxes().eval(), boxes_image()

    def function(batch):
        made = net(torch.as_tensor(batch))
        return [{key: value.detach().numpy() for key, value in one.items()} for one in made]

    wanted = hshap.models.detections(function, image)
    assert [one.box for one in wanted] == [one.box for one in hshap.models.detections(net, image)]
    maps = [
        Explainer(hshap.models.detector(one, wanted), Constant(0.0), Dyadic(4))
        .explain(image, target=1)
        .saliency()
        for one in (net, function)
    ]
    assert np.allclose(*maps)


def detr():
    torch.manual_seed(0)
    backbone = library.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1], out_features=["stage2"]
    )
    config = library.DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=backbone,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        num_queries=6,
        id2label=NAMES,
        label2id={name: number for number, name in NAMES.items()},
    )
    return library.DetrForObjectDetection(config).eval()


def test_boxes_of_detr_are_those_of_its_own_postprocessing(support):
    net = detr()
    processor = library.DetrImageProcessorPil(size={"shortest_edge": 64, "longest_edge": 96})
    ready = hshap.models.transformers(net, processor)
    found = hshap.models.detections(ready, PHOTO, least=0.0)
    inputs = processor(images=PHOTO, return_tensors="pt")
    with torch.no_grad():
        (own,) = processor.post_process_object_detection(
            net(**inputs), threshold=0.0, target_sizes=[PHOTO.shape[:2]]
        )
    order = own["scores"].argsort(descending=True, stable=True)
    boxes = own["boxes"][order].numpy()
    apart = largest([one.box for one in found], boxes)
    support(
        "models",
        kind="detector of the DETR family (logits, pred_boxes)",
        library="transformers",
        checked="boxes, in pixels, against post_process_object_detection",
        difference=apart,
    )
    assert apart < 0.05  # of a pixel: the image is resized once with and once without bytes
    assert largest([one.score for one in found], own["scores"][order]) < 1e-3
    assert [one.label for one in found] == own["labels"][order].tolist()
    assert found[0].name in NAMES.values()
    model = hshap.models.detector(ready, found[:2])
    explained = Explainer(model, Constant(0.5), Dyadic(32)).explain(PHOTO, target=0)
    assert explained.grid == (44, 60)
    assert explained.score >= found[0].score - 1e-3


# Segmenters


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
def test_the_score_of_a_region_is_the_mean_probability_in_it(entry, support):
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
    support(
        "models",
        kind="segmenter (logits of a class map)",
        library="torch",
        checked="score against the mean probability in the region",
        difference=abs(found.score - own),
    )
    assert found.score == pytest.approx(own, abs=1e-6)
    assert found.leaves == (hshap.Box((8, 16), (16, 24)),)
    function = hshap.models.segmenter(lambda batch: logits_of(net, batch), region)
    again = Explainer(function, Constant(0.0), Dyadic(8)).explain(image, target=1)
    assert again.leaves == found.leaves
    assert again.score == pytest.approx(found.score, abs=1e-6)


def logits_of(net, batch):
    made = net(torch.as_tensor(batch))
    held = made["out"] if isinstance(made, dict) else getattr(made, "logits", made)
    return held.numpy()


def test_a_transformers_segmenter_takes_the_photo_as_it_is(support):
    torch.manual_seed(0)
    config = library.SegformerConfig(
        num_encoder_blocks=2,
        depths=[1, 1],
        sr_ratios=[2, 1],
        hidden_sizes=[8, 8],
        patch_sizes=[3, 3],
        strides=[2, 2],
        num_attention_heads=[1, 1],
        mlp_ratios=[1, 1],
        decoder_hidden_size=8,
        id2label=NAMES,
    )
    net = library.SegformerForSemanticSegmentation(config).eval()
    processor = library.SegformerImageProcessorPil(size={"height": 32, "width": 32})
    ready = hshap.models.transformers(net, processor)
    labels = hshap.models.segments(ready, PHOTO)
    inputs = processor(images=PHOTO, return_tensors="pt")
    with torch.no_grad():
        (own,) = processor.post_process_semantic_segmentation(
            net(**inputs), target_sizes=[PHOTO.shape[:2]]
        )
    same = float((labels == own.numpy()).mean())
    support(
        "models",
        kind="segmenter",
        library="transformers",
        checked="share of pixels unlike post_process_semantic_segmentation",
        difference=1 - same,
    )
    assert same > 0.95  # borders between classes differ by the interpolation
    region = labels == labels[20, 30]
    model = hshap.models.segmenter(ready, region)
    found = Explainer(model, Constant(0.5), Dyadic(32)).explain(PHOTO, target=int(labels[20, 30]))
    assert found.class_name == NAMES[int(labels[20, 30])]


# Images and texts


def clip():
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = {
        **sizes,
        "intermediate_size": 16,
        "vocab_size": 40,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    vision = {**sizes, "intermediate_size": 16, "image_size": 32, "patch_size": 8}
    config = library.CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)
    return library.CLIPModel(config).eval()


def clip_processor():
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["<|startoftext|>", "<|endoftext|>", *letters[:18], *(f"{one}</w>" for one in letters)]
    vocabulary = {word: number for number, word in enumerate(words[:40])}
    tokenizer = library.CLIPTokenizer(vocab=vocabulary, merges=[])
    images = library.CLIPImageProcessorPil(
        size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}
    )
    return library.CLIPProcessor(images, tokenizer)


def test_sentences_score_as_logits_per_image(support):
    net, processor = clip(), clip_processor()
    sentences = ["a b c", "d e"]
    model = hshap.models.image_text(net, processor, sentences)
    explainer = Explainer(model, Constant(0.5), Dyadic(16))
    image = NOISE[:32, :32]
    found = explainer.explain(image, target=sentences)
    inputs = processor(text=sentences, images=image, return_tensors="pt", padding=True)
    with torch.no_grad():
        own = net(**inputs).logits_per_image[0].numpy()
    assert abs(own[0] - own[1]) > 1e-3
    apart = largest([one.score for one in found], own)
    support(
        "models",
        kind="image-text model (similarity to a sentence)",
        library="transformers",
        checked="scores against logits_per_image",
        difference=apart,
    )
    assert apart < 1e-4
    assert [one.class_name for one in found] == sentences


def test_sentences_are_explained_on_the_photo_by_the_default_call():
    model = hshap.models.image_text(clip(), clip_processor(), "a b c")
    found = Explainer(model).explain(PHOTO, target=0)
    assert found.grid == (44, 60)


# Reading images


@pytest.mark.parametrize(
    ("shape", "intake", "layout"),
    [
        ((8, 9, 3), Intake(3), "HWC"),
        ((3, 8, 9), Intake(3), "CHW"),
        ((3, 9, 3), Intake(3, "HWC"), "HWC"),
        ((8, 9, 7), Intake(None, "HWC", unit=False), "HWC"),
        ((8, 9), Intake(1), "HW"),
    ],
)
def test_the_order_of_axes_is_found(shape, intake, layout):
    assert intake.read(np.zeros(shape, np.float32), None).layout == layout


def test_pillow_images_are_taken_as_they_are():
    from PIL import Image

    explainer = Explainer(
        hshap.models.transformers(vit(), vit_processor()), Constant(0.5), Dyadic(32)
    )
    one = explainer.explain(Image.fromarray(PHOTO), target=0).saliency()
    assert np.array_equal(one, explainer.explain(PHOTO, target=0).saliency())


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


def test_a_label_that_a_detector_of_transformers_lacks_is_refused_by_its_number():
    scores, boxes = torch.tensor([[0.1, 0.9]]), torch.tensor([[0.0, 0.0, 4.0, 4.0]])
    candidates = Candidates(boxes, scores, None)
    assert float(candidates.of_class(1)[0]) == pytest.approx(0.9)
    with pytest.raises(ArgumentError, match=r"label=9 is no class.*pass 0 to 1"):
        candidates.of_class(9)


def test_a_keras_model_with_two_outputs_is_refused_with_the_way_to_one():
    class Two:
        __module__ = "keras.made"
        input_shape = (None, 8, 8, 3)

        def __call__(self, batch, *, training):
            assert not training
            return [batch, batch]

    pytest.importorskip("keras")
    model = hshap.models.keras(Two())
    with pytest.raises(hshap.ModelError, match=r"has 2 outputs; pass keras\.Model"):
        model(np.zeros((1, 3, 8, 8), np.float32))
