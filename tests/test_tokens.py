"""Leaving tokens out gives the scores of masking them in every attention."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from full_passes import every_game

from benchmarks.models.vit import ViT
from hshap import ArgumentError, Bisection, Constant, Dyadic, Explainer, Superpixels, Tokens
from hshap.errors import ModelFailedError

SIDE, PATCH = 24, 4
torch.manual_seed(0)
MODEL = ViT(SIDE, PATCH, classes=3).eval()
IMAGE = np.random.default_rng(0).random((3, SIDE, SIDE), dtype=np.float32)


def shown_patches(inside):
    """Which patches a mask of pixels shows: those of which it shows half."""
    split = (SIDE // PATCH, PATCH, SIDE // PATCH, PATCH)
    return inside.reshape(split).mean(axis=(1, 3)).ravel() >= 0.5


def masked(image, inside):
    """Run the full transformer, with the tokens of hidden patches masked in every attention."""
    hidden = torch.from_numpy(np.concatenate([[False], ~shown_patches(inside)]))[None]
    with torch.inference_mode():
        tokens = MODEL.embed(torch.from_numpy(image)[None])
        for block in MODEL.blocks:
            tokens = block(tokens, hidden)
        return MODEL.head(tokens)[0].numpy()


def each_value(found, most):
    """Yield the values of games, and the pixels that each coalition shows."""
    for game in found.games[:most]:
        for coalition, value in enumerate(game.values):
            inside = np.zeros((SIDE, SIDE), dtype=bool)
            for player, part in enumerate(game.children):
                inside[part.index] |= bool(coalition >> player & 1)
            yield value, inside


@pytest.mark.parametrize("partition", [Bisection(4), Dyadic(8), Superpixels(30)], ids=str)
def test_every_value_is_that_of_the_masked_transformer(partition):
    found = Explainer(Tokens(MODEL, PATCH), Constant(0.0), partition).explain(IMAGE, target=1)
    for value, inside in each_value(found, 12):
        assert value == pytest.approx(masked(IMAGE, inside)[1], abs=1e-5)


def test_with_everything_shown_it_is_the_model():
    found = Explainer(Tokens(MODEL, PATCH), Constant(0.0), Bisection(8)).explain(IMAGE, target=2)
    with torch.inference_mode():
        assert found.score == pytest.approx(float(MODEL(torch.from_numpy(IMAGE)[None])[0, 2]))


def test_many_images():
    images = [IMAGE, IMAGE[:, ::-1].copy(), IMAGE[:, :, ::-1].copy()]
    explainer = Explainer(Tokens(MODEL, (4, 4)), Constant(0.0), Bisection(8))
    for made in explainer.explain_many((image, 0) for image in images):
        alone = explainer.explain(images[made.position], target=0)
        assert np.allclose(made.attribution(), alone.attribution(), atol=1e-6)


class Counting(ViT):
    """Counts the images that it embeds."""

    def embed(self, images):
        self.embedded += len(images)
        return super().embed(images)


def test_an_image_is_embedded_once():
    model = Counting(SIDE, PATCH, classes=3).eval()
    model.embedded = 0
    explainer = Explainer(Tokens(model, PATCH), Constant(0.0), Bisection(8))
    assert len(list(explainer.explain_many((IMAGE + 0.1 * n, 0) for n in range(5)))) == 5
    assert model.embedded == 5


@pytest.mark.parametrize("part", ["embed", "blocks", "head"])
def test_a_failing_model_is_named_with_its_inputs(part):
    class Fails(torch.nn.Module):
        def forward(self, *_):
            message = "mine"
            raise KeyError(message)

    model = torch.nn.Module()
    model.embed, model.blocks, model.head = MODEL.embed, torch.nn.Identity(), torch.nn.Flatten()
    setattr(model, part, Fails())
    explainer = Explainer(Tokens(model.eval(), PATCH), Constant(0.0), Bisection(8))
    with pytest.raises(ModelFailedError, match=r"of the run: KeyError: 'mine'") as caught:
        explainer.explain(IMAGE, target=0)
    assert isinstance(caught.value.__cause__, KeyError)


def test_mistakes_are_answered():
    with pytest.raises(ArgumentError, match="without embed, blocks, head"):
        Tokens(torch.nn.Linear(2, 2), 4)
    with pytest.raises(ArgumentError, match="patch is missing; pass the side"):
        Tokens(MODEL)
    with pytest.raises(ArgumentError, match="patch must be at least 1"):
        Tokens(MODEL, 0)
    with pytest.raises(ArgumentError, match="prefix must be at least 1"):
        Tokens(MODEL, 4, prefix=0)
    with pytest.raises(ArgumentError, match=r"patch=5 does not divide the grid \(24, 24\)"):
        Explainer(Tokens(MODEL, 5), Constant(0.0), Bisection(8)).explain(IMAGE, target=0)
    with pytest.raises(ArgumentError, match="training mode"):
        Tokens(ViT(SIDE, PATCH, classes=2).train(), 4)


class WithRegisters(torch.nn.Module):
    """A transformer with register tokens before or after those of the patches."""

    def __init__(self, *, leading=0, trailing=0):
        super().__init__()
        self.inner, self.blocks = MODEL, MODEL.blocks
        self.leading = torch.nn.Parameter(torch.randn(1, leading, MODEL.embed(BATCH).shape[-1]))
        self.trailing = torch.nn.Parameter(torch.randn(1, trailing, self.leading.shape[-1]))

    def embed(self, images):
        tokens = self.inner.embed(images)
        given = (part.expand(len(images), -1, -1) for part in (self.leading, self.trailing))
        leading, trailing = given
        return torch.cat([tokens[:, :1], leading, tokens[:, 1:], trailing], 1)

    def head(self, tokens):
        return self.inner.head(tokens)

    def expected(self, image, inside):
        """Score with the tokens of hidden patches left out by hand."""
        shown = torch.from_numpy(shown_patches(inside))
        with torch.inference_mode():
            tokens = self.inner.embed(torch.from_numpy(image)[None])
            kept = [tokens[:, :1], self.leading, tokens[:, 1:][:, shown], self.trailing]
            tokens = torch.cat(kept, 1)
            for block in self.blocks:
                tokens = block(tokens)
            return self.inner.head(tokens)[0].numpy()


BATCH = torch.from_numpy(IMAGE)[None]


@pytest.mark.parametrize(("leading", "trailing"), [(0, 0), (4, 0), (0, 3), (2, 1)])
def test_register_tokens_are_always_shown(leading, trailing):
    model = WithRegisters(leading=leading, trailing=trailing).eval()
    tokens = Tokens(model, PATCH, prefix=1 + leading, suffix=trailing)
    found = Explainer(tokens, Constant(0.0), Bisection(8)).explain(IMAGE, target=1)
    for value, inside in each_value(found, 6):
        assert value == pytest.approx(model.expected(IMAGE, inside)[1], abs=1e-5)


@pytest.mark.parametrize(
    ("registers", "options", "told"),
    [
        ({"leading": 4}, {}, "prefix=1 and suffix=0 do not fit: embed returned 41 tokens for 36"),
        ({"trailing": 4}, {}, "pass prefix=5 if all others come first"),
        ({}, {"prefix": 3}, "prefix=3 .* returned 37 tokens for 36 patches of patch=4; pass pref"),
        ({}, {"prefix": 1000}, "prefix=1000 and suffix=0 do not fit"),
        ({}, {"suffix": 2}, "suffix=2 do not fit"),
        ({}, {"patch": 2}, "37 tokens for 144 patches of patch=2; pass the side of the model's"),
    ],
)
def test_a_number_of_tokens_that_does_not_fit_is_refused(registers, options, told):
    tokens = Tokens(WithRegisters(**registers).eval(), **{"patch": PATCH, **options})
    with pytest.raises(ArgumentError, match=told):
        Explainer(tokens, Constant(0.0), Bisection(8)).explain(IMAGE, target=0)


@pytest.mark.parametrize("made", [lambda x: x.flatten(1), lambda x: [x], lambda x: x.expand(2, 3)])
def test_an_embedding_of_another_shape_is_refused(made):
    class Other(ViT):
        def embed(self, images):
            return made(torch.zeros(1, 3))

    tokens = Tokens(Other(SIDE, PATCH, classes=3).eval(), PATCH)
    with pytest.raises(ArgumentError, match=r"it must return tokens \(1, tokens, width\)"):
        Explainer(tokens, Constant(0.0), Bisection(8)).explain(IMAGE, target=0)


def test_out_of_memory_halves_the_batch():
    sizes = []

    class Small(ViT):
        def head(self, tokens):
            sizes.append(len(tokens))
            if len(tokens) > 3:
                message = "CUDA out of memory"
                raise torch.OutOfMemoryError(message)
            return super().head(tokens)

    torch.manual_seed(0)
    model = Small(SIDE, PATCH, classes=3).eval()
    model.load_state_dict(MODEL.state_dict())
    found, full = (
        Explainer(Tokens(one, PATCH), Constant(0.0), Dyadic(8)).explain(IMAGE, target=1)
        for one in (model, MODEL)
    )
    assert np.allclose(found.attribution(), full.attribution(), atol=1e-6)
    assert max(sizes[3:]) <= 3


def test_a_model_that_writes_to_its_input_or_output_does_no_harm():
    class Writes(ViT):
        def embed(self, images):
            self.made = super().embed(images)
            images.zero_()
            return self.made

        def head(self, tokens):
            scores = super().head(tokens)
            self.made.zero_()
            tokens.zero_()
            return scores

    model = Writes(SIDE, PATCH, classes=3).eval()
    model.load_state_dict(MODEL.state_dict())
    image = IMAGE.copy()
    found = Explainer(Tokens(model, PATCH), Constant(0.0), Bisection(8)).explain(image, target=1)
    full = Explainer(Tokens(MODEL, PATCH), Constant(0.0), Bisection(8)).explain(IMAGE, target=1)
    assert np.allclose(found.attribution(), full.attribution(), atol=1e-6)
    assert np.array_equal(image, IMAGE)


class Parts(torch.nn.Module):
    """A classifier of transformers, as the how-to page wraps it."""

    def __init__(self, model):
        super().__init__()
        self.model, self.blocks = model, model.vit.layers

    def embed(self, images):
        return self.model.vit.embeddings(images)

    def head(self, tokens):
        return self.model.classifier(self.model.vit.layernorm(tokens)[:, 0])


@pytest.mark.frameworks
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_model_of_transformers_is_the_one_with_masked_attention(attention):
    """Its own forward pass takes a mask of tokens, which no part of hshap is used for."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(1)
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
    config = transformers.ViTConfig(
        image_size=SIDE, patch_size=PATCH, intermediate_size=64, num_labels=3, **sizes
    )
    config._attn_implementation = attention
    model = transformers.ViTForImageClassification(config).eval()
    for weight in model.parameters():  # usual random weights hardly look at the image
        weight.data += 0.3 * torch.randn_like(weight)
    if not hasattr(model.vit, "layers"):
        pytest.skip("this version of transformers has no masks of tokens")

    def scores(inside):
        mask = torch.from_numpy(np.concatenate([[True], shown_patches(inside)]))[None].long()
        with torch.inference_mode():
            image = torch.from_numpy(IMAGE)[None]
            return model(image, attention_mask=mask).logits[0].double().numpy()

    tokens = Tokens(Parts(model).eval(), PATCH)
    found = Explainer(tokens, Constant(0.0), Bisection(4)).explain(IMAGE, target=1)
    values = []
    for value, inside in each_value(found, 12):
        assert value == pytest.approx(scores(inside)[1], abs=2e-5)
        values.append(value)
    assert np.ptp(values) > 0.1


# Classifiers of transformers, as they come

SIDES = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "num_labels": 3}
SIDES |= {"intermediate_size": 48, "image_size": SIDE, "patch_size": PATCH}


def of_transformers(kind):
    """A small classifier with random weights, no two tokens alike."""
    transformers = pytest.importorskip("transformers")
    family = kind.removesuffix("WithTeacher").removesuffix("ForImageClassification")
    config = getattr(transformers, f"{family}Config")(**SIDES)
    torch.manual_seed(0)
    model = getattr(transformers, kind)(config).eval()
    for weights in model.parameters():
        torch.nn.init.normal_(weights, std=0.2)
    return model


def masked_in_attention(model, image, shown, prefix):
    """The score for an attention mask of the library; heads that average see shown patches."""
    kept = torch.from_numpy(np.concatenate([np.ones(prefix, bool), shown]))[None]
    inner = getattr(model, model.base_model_prefix)
    tokens = inner(torch.from_numpy(image)[None], attention_mask=kept.long()).last_hidden_state
    if hasattr(model, "cls_classifier"):
        both = model.cls_classifier(tokens[:, 0]) + model.distillation_classifier(tokens[:, 1])
        return both[0] / 2
    if model.base_model_prefix.startswith("dinov2"):
        patches = tokens[:, prefix:][:, torch.from_numpy(shown)]
        mean = patches.mean(1) if shown.any() else torch.zeros(1, tokens.shape[2])
        return model.classifier(torch.cat([tokens[:, 0], mean], 1))[0]
    return model.classifier(tokens[:, 0])[0]


@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("kind", "prefix"),
    [
        ("ViTForImageClassification", 1),
        ("DeiTForImageClassification", 2),
        ("DeiTForImageClassificationWithTeacher", 2),
        ("Dinov2ForImageClassification", 1),
        ("Dinov2WithRegistersForImageClassification", 5),
        ("ViTMSNForImageClassification", 1),
    ],
)
def test_a_classifier_of_transformers_needs_no_wrapper(kind, prefix):
    model = of_transformers(kind)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    found = Explainer(Tokens(model), Constant(0.0), Bisection(4), every_game).explain(IMAGE, 1)
    with torch.inference_mode():
        assert found.score == pytest.approx(
            float(model(torch.from_numpy(IMAGE)[None]).logits[0, 1])
        )
        for value, inside in each_value(found, 12):
            expected = masked_in_attention(model, IMAGE, shown_patches(inside), prefix)[1]
            assert value == pytest.approx(float(expected), abs=1e-5)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("Swin", {"num_labels": 3, "image_size": SIDE, "patch_size": PATCH, "window_size": 3}),
        ("Beit", {**SIDES, "use_relative_position_bias": True}),
        ("ConvNext", {"num_labels": 3, "patch_size": PATCH}),
    ],
)
def test_tokens_that_need_their_places_are_refused(kind, options):
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, f"{kind}Config")(**options)
    model = getattr(transformers, f"{kind}ForImageClassification")(config).eval()
    with pytest.raises(ArgumentError, match="whose tokens cannot be left out"):
        Explainer(Tokens(model), Constant(0.0), Bisection(8)).explain(IMAGE, target=0)


@pytest.mark.frameworks
def test_a_model_whose_scores_depend_on_the_order_of_patches_is_refused():
    model = of_transformers("ViTForImageClassification")
    blur = torch.nn.AvgPool1d(3, 1, 1)
    model.vit.layernorm.register_forward_pre_hook(lambda _, args: (blur(args[0].mT).mT,))
    with pytest.raises(ArgumentError, match="with the order of its patches; use Batched"):
        Explainer(Tokens(model), Constant(0.0), Bisection(8)).explain(IMAGE, target=0)
