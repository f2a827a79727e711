"""Leaving tokens out gives the scores of masking them in every attention."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from benchmarks.models.vit import ViT
from hshap import (
    ArgumentError,
    Bisection,
    Constant,
    Dyadic,
    Explainer,
    ModelFailedError,
    Superpixels,
    Tokens,
)
from hshap.evaluators.tokens import TokenSession

SIDE, PATCH = 24, 4
torch.manual_seed(0)
MODEL = ViT(SIDE, PATCH, classes=3).eval()
IMAGE = np.random.default_rng(0).random((3, SIDE, SIDE), dtype=np.float32)


def masked(image, inside):
    """Run the full transformer, with the tokens of hidden patches masked in every attention."""
    split = (SIDE // PATCH, PATCH, SIDE // PATCH, PATCH)
    shown = inside.reshape(split).mean(axis=(1, 3)).ravel() >= 0.5
    hidden = torch.from_numpy(np.concatenate([[False], ~shown]))[None]
    with torch.inference_mode():
        tokens = MODEL.embed(torch.from_numpy(image)[None])
        for block in MODEL.blocks:
            tokens = block(tokens, hidden)
        return MODEL.head(tokens)[0].numpy()


@pytest.mark.parametrize("partition", [Bisection(4), Dyadic(8), Superpixels(30)], ids=str)
def test_every_value_is_that_of_the_masked_transformer(partition):
    found = Explainer(Tokens(MODEL, PATCH), Constant(0.0), partition).explain(IMAGE, target=1)
    for game in found.games[:12]:
        for coalition, value in enumerate(game.values):
            inside = np.zeros((SIDE, SIDE), dtype=bool)
            for player, part in enumerate(game.children):
                inside[part.index] |= bool(coalition >> player & 1)
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


def test_an_image_is_embedded_once_while_its_tokens_are_kept():
    model = Counting(SIDE, PATCH, classes=3).eval()
    images = [IMAGE + 0.1 * n for n in range(5)]
    found = {}
    for most in (1, 5):

        class FewImages:
            def __init__(self, most):
                self.most = most

            def open_session(self):
                return TokenSession(Tokens(model, PATCH), max_images=self.most)

        model.embedded = 0
        explainer = Explainer(FewImages(most), Constant(0.0), Bisection(8))
        made = sorted(explainer.explain_many((i, 0) for i in images), key=lambda e: e.position)
        found[most] = [one.attribution() for one in made]
        assert (model.embedded == 5) == (most == 5)
    assert np.allclose(found[1], found[5], atol=1e-6)


@pytest.mark.parametrize("part", ["embed", "blocks", "head"])
def test_a_failing_model_is_named_with_its_inputs(part):
    class Fails(torch.nn.Module):
        def forward(self, *_):
            message = "mine"
            raise KeyError(message)

    model = torch.nn.Module()
    for name in ("embed", "blocks", "head"):
        setattr(model, name, torch.nn.Flatten(2))
    setattr(model, part, Fails())
    explainer = Explainer(Tokens(model.eval(), PATCH), Constant(0.0), Bisection(8))
    with pytest.raises(ModelFailedError, match=r"of the run: KeyError: 'mine'") as caught:
        explainer.explain(IMAGE, target=0)
    assert isinstance(caught.value.__cause__, KeyError)


def test_mistakes_are_answered():
    with pytest.raises(ArgumentError, match="without embed, blocks, head"):
        Tokens(torch.nn.Linear(2, 2), 4)
    with pytest.raises(ArgumentError, match="patch must be at least 1"):
        Tokens(MODEL, 0)
    with pytest.raises(ArgumentError, match="prefix must be at least 1"):
        Tokens(MODEL, 4, prefix=0)
    with pytest.raises(ArgumentError, match=r"patch=5 does not divide the grid \(24, 24\)"):
        Explainer(Tokens(MODEL, 5), Constant(0.0), Bisection(8)).explain(IMAGE, target=0)
    with pytest.raises(ArgumentError, match="training mode"):
        Tokens(ViT(SIDE, PATCH, classes=2).train(), 4)
