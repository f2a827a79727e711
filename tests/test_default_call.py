"""The call without a choice: `Explainer(model).explain(image, target)`, and `hshap explain`."""

import gc
import re
import time
import weakref

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import hshap
from hshap.cli.app import app
from hshap.explainer.choosing_parts import usual_partition
from hshap.metrics import f1

torch = pytest.importorskip("torch")


def bundled():
    samples = hshap.demo.bundled()
    images = samples["images"].astype(np.float32) / np.float32(255)
    return zip(images, samples["truths"], samples["crosses"], strict=True)


@pytest.mark.parametrize("target", [1, hshap.Output(1, "softmax")])
def test_every_cross_of_the_demo_is_found(target):
    explainer = hshap.Explainer(hshap.demo.load())
    for image, truth, crosses in bundled():
        found = explainer.explain(image, target=target)
        assert f1(found.saliency(), truth) > 0.99
        assert len(found.boxes()) == crosses
        assert found.evaluations <= 100
        assert "hidden pixels show" in found.settings["chosen"]


def spot(side=40):
    image = np.full((1, side, side), 0.8)
    image[0, 10:16, 20:26] = 0.1
    return image


def dark(batch):
    return (batch < 0.3).any(axis=(1, 2, 3)).astype(float)


def test_every_evaluation_counts():
    calls = []

    def counted(batch):
        calls.append(len(batch))
        return dark(batch)

    model = hshap.Batched(counted, check_batches=False)
    search = hshap.DepthFirst(max_evaluations=12)
    found = hshap.Explainer(model, search=search).explain(spot(), target=0)
    assert found.evaluations <= 12
    whole = hshap.Explainer(model).explain(spot(), target=0)
    assert sum(calls) == found.evaluations + whole.evaluations
    assert f1(whole.saliency(), spot()[0] < 0.3) == 1.0
    calls.clear()
    for found in hshap.Explainer(model).explain_many([(spot(), 0)] * 3):
        assert found.provenance.full == found.evaluations


def baselines():
    noise = 0.5 + 0.01 * np.random.default_rng(0).random((3, 1, 20, 20))
    return {
        "the usual": None,
        "one draw": hshap.Constant(0.5),
        "two draws": hshap.References(noise[:2]),
        "three draws": hshap.References(noise),
    }


@pytest.mark.parametrize("partition", [None, hshap.Dyadic(5)], ids=repr)
@pytest.mark.parametrize("which", baselines())
def test_no_budget_is_ever_exceeded(which, partition):
    class Dark(torch.nn.Module):
        inputs = 0

        def forward(self, batch):
            self.inputs += len(batch)
            return (1 - batch).amax((2, 3))

    image = spot(20).astype(np.float32)
    refused = True
    for most in range(1, 61, 2 if partition else 6):  # trees take longer
        model = Dark().eval()
        explainer = hshap.Explainer(
            hshap.Batched(model, check_batches=False),
            baselines()[which],
            partition,
            hshap.DepthFirst(max_evaluations=most),
        )
        try:
            found = explainer.explain(image, target=0)
        except hshap.ArgumentError as error:
            found, told = None, str(error)
        if found is None:
            assert refused, "a larger budget is refused where a smaller one was enough"
            assert f"max_evaluations={most} " in told
            assert model.inputs == 0
            continue
        refused = False
        assert model.inputs == found.evaluations <= most
        assert found.at(tolerance=0.0).evaluations == found.evaluations
    assert not refused


def test_seconds_include_every_call():
    inside = []

    class Slow(torch.nn.Module):
        def forward(self, batch):
            started = time.perf_counter()
            time.sleep(0.05)
            inside.append(time.perf_counter() - started)
            return (1 - batch).amax((2, 3))

    model = hshap.Batched(Slow().eval(), check_batches=False)
    image = spot().astype(np.float32)
    before = time.perf_counter()
    found = hshap.Explainer(model, search=hshap.DepthFirst(max_evaluations=60)).explain(image, 0)
    passed = time.perf_counter() - before
    assert sum(inside) <= found.seconds <= passed
    # One call takes all of these seconds; the first game is always played.
    search = hshap.DepthFirst(max_seconds=0.05)
    assert len(hshap.Explainer(model, search=search).explain(image, target=0).games) == 1


@pytest.mark.parametrize("given", [[], "blur", hshap.OwnColour, [hshap.OwnColour()]], ids=repr)
def test_anything_but_one_baseline_is_refused(given):
    with pytest.raises(hshap.ArgumentError, match="baseline is"):
        hshap.Explainer(dark, given)


def test_given_parts_are_taken_as_they_are():
    found = hshap.Explainer(dark, baseline=hshap.Constant(0.8), partition=hshap.Dyadic(5)).explain(
        spot(), target=0
    )
    assert not found.settings.chosen
    assert found.settings["search"]["type"] == "DepthFirst"
    assert found.settings.search.tolerance == 0.0


def test_without_the_library_for_trees_a_grid_is_taken():
    grid = usual_partition(2, needed=["no_such_library"])
    found = hshap.Explainer(dark, partition=grid).explain(spot(), target=0)
    assert found.settings["partition"] == {"type": "Bisection", "min_size": 1}
    assert f1(found.saliency(), spot()[0] < 0.3) > 0.5


def test_signals_and_volumes_are_explained_too():
    signal = np.zeros((1, 64))
    signal[0, 30:33] = 1.0
    found = hshap.Explainer(lambda b: b.max(axis=(1, 2))).explain(signal, target=0)
    assert found.attribution()[30:33].sum() == pytest.approx(1.0, abs=0.1)
    volume = np.zeros((1, 12, 12, 12))
    volume[0, 3:6, 3:6, 3:6] = 1.0
    found = hshap.Explainer(lambda b: b.max(axis=(1, 2, 3, 4))).explain(volume, target=0)
    assert found.attribution()[3:6, 3:6, 3:6].sum() == pytest.approx(1.0, abs=0.1)


def test_several_targets_share_the_choice():
    def two(batch):
        return np.stack([dark(batch), 1 - dark(batch)], axis=1)

    found = hshap.Explainer(two).explain(spot(), target=[0, 1])
    for name in ("baseline", "partition"):
        assert found[0].settings[name] == found[1].settings[name]


def test_a_model_of_one_input_at_a_time_is_asked_so():
    sizes = []

    def one(batch):
        sizes.append(len(batch))
        return dark(batch)

    hshap.Explainer(hshap.Batched(one, batch_size=1)).explain(spot(), target=0)
    assert set(sizes) == {1}


def test_setups_of_finished_images_are_forgotten():
    pairs = ((spot(), 0) for _ in range(100))
    run = hshap.Explainer(dark, partition=hshap.Bisection(40)).explain_many(pairs)
    seen = [weakref.ref(next(run).settings) for _ in range(60)]
    gc.collect()
    assert sum(ref() is not None for ref in seen) <= 2  # the run is not over


def test_many_images_are_each_given_a_baseline_of_their_own():
    pairs = [(spot(), 0), (1 - spot(), 0)]
    model = hshap.Batched(lambda b: (np.abs(b - 0.45) > 0.4).any(axis=(1, 2, 3)).astype(float))
    found = list(hshap.Explainer(model).explain_many(pairs))
    assert {one.position for one in found} == {0, 1}
    assert all("chosen" in one.settings for one in found)


def test_the_command_finds_every_cross(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "images").mkdir()
    for number, (image, _, _) in enumerate(bundled()):
        pixels = np.rint(np.moveaxis(image, 0, -1) * 255).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{number}.png")
    words = ["explain", "images", "--model", "hshap.demo:load()", "--target", "1", "--strict"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.stderr
    for number, (_, truth, crosses) in enumerate(bundled()):
        found = hshap.Explanation.load(tmp_path / "hshap-output" / f"{number}.npz")
        assert f1(found.saliency(), truth) > 0.99
        assert len(found.boxes()) == crosses
    # A slow machine has lines of progress, too.
    lines = done.stderr.splitlines()
    (line,) = (line for line in lines if not line.startswith("hshap: explaining: "))
    assert re.match(r"hshap: \d\.png: hidden pixels show the image's own colour; ", line)
    assert "regions are those of Superpixels" in line
    assert "the largest shares are split first, at most 200 evaluations" in line
