"""Models of other libraries: each library's own call is the oracle for the adapter's scores.

Networks are small and have random weights.
"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import hshap
from hshap import Constant, Dyadic, Explainer

os.environ.setdefault("KERAS_BACKEND", "torch")
torch = pytest.importorskip("torch")


pytestmark = pytest.mark.frameworks


class Library:
    """The package transformers, imported when it is used: the fast tier collects this file, too."""

    def __getattr__(self, name):
        return getattr(pytest.importorskip("transformers"), name)


library = Library()

PHOTO = (127 + 100 * np.sin(np.mgrid[:44, :60][0] / 7)[..., None] * np.ones(3)).astype(np.uint8)
NOISE = np.random.default_rng(3).integers(64, 192, (44, 60, 3), dtype=np.uint8)
"""Not up to black and white: how pillow cuts overshoots off depends on its version."""


NAMES = {0: "cat", 1: "dog", 2: "bird"}


@pytest.fixture
def note(support):
    """Return a function that notes a row of the table of models in docs/support.md."""

    def note(kind, library, checked, apart):
        support("models", kind=kind, library=library, checked=checked, difference=apart)

    return note


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
def test_inputs_are_those_of_the_processor_up_to_its_rounding_to_bytes(kind, options):
    # Made here: processes that collect this test, and do not run it, need not import its class.
    processor = getattr(library, f"{kind}ImageProcessorPil")(**options)

    class Seen(torch.nn.Module):
        def forward(self, images):
            return images

    ready = hshap.models.transformers(Seen(), processor)
    spread = np.min(processor.image_std) if processor.do_normalize else 1.0
    unit = processor.rescale_factor if processor.do_rescale else 1.0
    for shape in ((44, 60), (90, 37), (32, 32)):
        image = np.random.default_rng(0).integers(64, 192, (*shape, 3), dtype=np.uint8)
        own = processor(images=image, return_tensors="np")["pixel_values"][0]
        # A byte is rounded after each of the two directions of a resize.
        assert largest(ready(plain(image))[0], own) < 1.6 * unit / spread


def test_scores_of_a_transformers_classifier_are_its_own(note):
    model, processor = vit(), vit_processor()
    ready = hshap.models.transformers(model, processor)
    same_size = PHOTO[:32, :32]
    with torch.no_grad():
        found = ready(plain(same_size)).logits[0]
    apart = largest(found, own_logits(model, processor, same_size))
    note(
        "image classifier", "transformers", "logits against the model with its own processor", apart
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
    image = pytest.importorskip("PIL.Image").fromarray(PHOTO)
    pictures = [PHOTO, floats, np.moveaxis(PHOTO, -1, 0), np.moveaxis(floats, -1, 0), image]
    maps = [explainer.explain(one, target=0).saliency() for one in pictures]
    assert all(np.array_equal(one, maps[0]) for one in maps)


def test_multi_label_heads_take_a_sigmoid(note):
    model = vit(problem_type="multi_label_classification")
    processor = vit_processor()
    explainer = Explainer(hshap.models.transformers(model, processor), Constant(0.5), Dyadic(16))
    found = explainer.explain(PHOTO[:32, :32], target=hshap.Output(2, "sigmoid"))
    own = 1 / (1 + np.exp(-own_logits(model, processor, PHOTO[:32, :32])[2].astype(float)))
    note(
        "multi-label head",
        "transformers",
        "score against the sigmoid of the model's own logit",
        abs(found.score - own),
    )
    assert found.score == pytest.approx(own, abs=1e-6)
    assert found.class_name == "bird"


TRANSFORMER = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
FAMILIES = {
    "ViT": {"hidden_size": 16, "patch_size": 8, **TRANSFORMER},
    "Beit": {"hidden_size": 16, "patch_size": 8, **TRANSFORMER},
    "Dinov2": {"hidden_size": 16, "patch_size": 8, **TRANSFORMER},
    "Dinov2WithRegisters": {"hidden_size": 16, "patch_size": 8, **TRANSFORMER},
    "Swin": {"embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2], "window_size": 4},
    "ConvNextV2": {"hidden_sizes": [8, 12], "depths": [1, 1], "num_stages": 2},
    "ResNet": {"embedding_size": 8, "hidden_sizes": [8, 12], "depths": [1, 1]},
    "Siglip": {
        "vision_config": {"hidden_size": 16, "patch_size": 8, "image_size": 32, **TRANSFORMER}
    },
}
"""Small networks of families that the README names, or that look at images in another way."""


@pytest.mark.parametrize("family", FAMILIES)
def test_one_line_explains_a_classifier_of_any_family(family):
    torch.manual_seed(0)
    sides = {} if family in {"ResNet", "Siglip"} else {"image_size": 32}
    config = getattr(library, f"{family}Config")(**FAMILIES[family], **sides, id2label=NAMES)
    model = getattr(library, f"{family}ForImageClassification")(config).eval()
    processor = vit_processor()
    explainer = Explainer(hshap.models.transformers(model, processor))
    found = explainer.explain(PHOTO[:32, :32], target="dog")
    assert found.score == pytest.approx(own_logits(model, processor, PHOTO[:32, :32])[1], abs=1e-4)
    assert (found.class_name, found.grid) == ("dog", (32, 32))
    total = found.attribution().sum() + found.residual
    assert total == pytest.approx(found.score - found.baseline_score, abs=1e-4)


# scikit-learn


def digits():
    from sklearn.datasets import load_digits

    return load_digits()


def flattened(method, names):
    return hshap.models.function(lambda batch: method(batch.reshape(len(batch), -1)), names=names)


def test_a_scikit_learn_pipeline_gives_its_own_probabilities(note):
    from sklearn.decomposition import PCA
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    data = digits()
    steps = make_pipeline(StandardScaler(), PCA(20), LogisticRegression(max_iter=300))
    fitted = steps.fit(data.data[:600], data.target[:600])
    image = data.images[700]
    explainer = Explainer(
        flattened(fitted.predict_proba, fitted.classes_), Constant(0.0), Dyadic(2)
    )
    found = explainer.explain(image, target=str(data.target[700]))
    own = fitted.predict_proba(image.reshape(1, -1))[0, data.target[700]]
    note(
        "pipeline of an image classifier",
        "scikit-learn",
        "score against predict_proba",
        abs(found.score - own),
    )
    assert found.score == pytest.approx(own, abs=1e-6)
    assert found.class_name == str(data.target[700])


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
def test_a_keras_model_gives_its_own_scores(note):
    keras = pytest.importorskip("keras")
    net = keras_model(keras)
    image = NOISE[:16, :20]
    explainer = Explainer(hshap.models.keras(net, names=list("abc")), Constant(0.0), Dyadic(8))
    found = explainer.explain(image, target="c")
    own = net.predict(image[None].astype("float32"), verbose=0)[0, 2]
    note(
        f"image classifier on the {keras.config.backend()} backend",
        "keras",
        "score against model.predict",
        abs(found.score - own),
    )
    assert found.score == pytest.approx(own, abs=1e-5)
    other_way = explainer.explain(np.moveaxis(image, -1, 0), target="c")
    assert np.array_equal(found.saliency(), other_way.saliency())
    with pytest.raises(hshap.ArgumentError, match=r"takes inputs of \(16, 20, 3\), but"):
        explainer.explain(np.zeros((3, 24, 20), np.float32), target=0)


@KERAS
def test_a_keras_model_with_two_outputs_is_refused():
    class Two:
        __module__ = "keras.made"
        input_shape = (None, 8, 8, 3)

        def __call__(self, batch, *, training):
            return [batch, batch]

    pytest.importorskip("keras")
    with pytest.raises(hshap.ModelError, match=r"has 2 outputs; pass keras\.Model"):
        hshap.models.keras(Two())(np.zeros((1, 3, 8, 8), np.float32))


@KERAS
def test_a_keras_model_on_jax_gives_the_same_explanation_as_on_torch(tmp_path, note):
    """The backend is fixed when Keras is imported, so the second one runs in its own process."""

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
    note(
        "image classifier on the jax backend",
        "keras",
        "map against the torch backend, same weights",
        apart,
    )
    assert apart < 1e-5


def test_a_jax_function_is_compiled_for_few_sizes_and_gives_its_own_scores(note):
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
    explainer = Explainer(hshap.models.function(scores, few_sizes=True), Constant(0.0), Dyadic(4))
    found = explainer.explain(image, target=0)
    own = float(scores(image[None])[0, 0])
    note(
        "function of batches (n, height, width, channels)",
        "jax",
        "score against the function",
        abs(found.score - own),
    )
    assert found.score == pytest.approx(own, abs=1e-6)
    assert found.saliency()[6, 21] > 0
    assert all(shape[0] in (1, 2, 4, 8, 16, 32) for shape in sizes)
    assert len(set(sizes)) == len(sizes) <= 6


# Detectors, segmenters, images and texts


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


def test_boxes_of_detr_are_those_of_its_own_postprocessing(note):
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
    note(
        "detector of the DETR family (logits, pred_boxes)",
        "transformers",
        "boxes, in pixels, against post_process_object_detection",
        apart,
    )
    assert apart < 0.05  # of a pixel: the image is resized once with and once without bytes
    assert largest([one.score for one in found], own["scores"][order]) < 1e-3
    assert [one.label for one in found] == own["labels"][order].tolist()
    assert found[0].name in NAMES.values()
    model = hshap.models.detector(ready, found[:2])
    explained = Explainer(model, Constant(0.5), Dyadic(32)).explain(PHOTO, target=0)
    assert explained.grid == (44, 60)
    assert explained.score >= found[0].score - 1e-3


def test_a_transformers_segmenter_takes_the_photo_as_it_is(note):
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
    note(
        "segmenter",
        "transformers",
        "share of pixels unlike post_process_semantic_segmentation",
        1 - same,
    )
    assert same > 0.95  # borders between classes differ by the interpolation
    region = labels == labels[20, 30]
    model = hshap.models.segmenter(ready, region)
    found = Explainer(model, Constant(0.5), Dyadic(32)).explain(PHOTO, target=int(labels[20, 30]))
    assert found.class_name == NAMES[int(labels[20, 30])]


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


def test_sentences_score_as_logits_per_image(note):
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
    note(
        "image-text model (similarity to a sentence)",
        "transformers",
        "scores against logits_per_image",
        apart,
    )
    assert apart < 1e-4
    assert [one.class_name for one in found] == sentences
    assert Explainer(hshap.models.image_text(net, processor, "d")).explain(PHOTO, 0).grid == (
        44,
        60,
    )
