"""A resumed run: a changed model, changed code, changed images, and runs that were forged."""

from __future__ import annotations

import functools
import hashlib
import json
import shutil
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
from commands import GIVEN, fine, folder_of_user, picture, written

import hshap
from hshap import ArgumentError, Constant, Dyadic, Explainer, runs
from hshap.runs.storing.folder import ShardWriter
from hshap.runs.storing.rows import digest_of

BLANK = Constant(0.0)
explain = functools.partial(runs.explain_dataset, positives=None)


@pytest.fixture
def images():
    return np.random.default_rng(3).random((6, 1, 8, 8)).astype(np.float32)


OTHER = "is a run of another model"


def explainer(model, **parts):
    return Explainer(model, **{"baseline": BLANK, "partition": Dyadic(2), **parts})


def brightest(batch):
    return batch.max(axis=(1, 2, 3))


# A changed model

torch = pytest.importorskip("torch")


class Net(torch.nn.Module):
    """A network with state that is not in its weights."""

    power = 1.0

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(64, 2)
        self.register_buffer("offset", torch.zeros(1), persistent=False)

    def forward(self, batch):
        return torch.sigmoid(self.linear(batch.flatten(1)) + self.offset) * self.power


CHOSEN = {"threshold": 0.5}


def passing(batch):
    return (batch > CHOSEN["threshold"]).mean(axis=(1, 2, 3))


def retrain(net, monkeypatch):
    with torch.no_grad():
        net.linear.weight += 0.01


def renew_offset(net, monkeypatch):
    net.offset += 0.1


# A model is known by its answers, so any change is seen, wherever it is.
CHANGES = {
    "weights": (lambda net: net, retrain),
    "a network that a function reads": (
        lambda net: lambda batch: net(torch.as_tensor(batch)).detach().numpy(),
        retrain,
    ),
    "a buffer that is not saved": (lambda net: net, renew_offset),
    "a hook": (
        lambda net: net,
        lambda net, _: net.register_forward_hook(lambda _module, _given, out: out * 1.1),
    ),
    "a class attribute": (
        lambda net: net,
        lambda net, monkeypatch: monkeypatch.setattr(Net, "power", 0.5),
    ),
    "a threshold": (
        lambda net: passing,
        lambda net, monkeypatch: monkeypatch.setitem(CHOSEN, "threshold", 0.55),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changed_models_are_refused(name, tmp_path, images, monkeypatch):
    make, change = CHANGES[name]
    net = Net().eval()
    model = make(net)
    first = explain(explainer(model), images[:3], tmp_path, target=0)
    again = explain(explainer(model), images[:4], tmp_path, target=0)
    assert (len(first), len(again)) == (3, 4)
    change(net, monkeypatch)
    with pytest.raises(ArgumentError, match=f"{OTHER}.*pass the same"):
        explain(explainer(model), images, tmp_path, target=0)
    assert len(runs.open(tmp_path)) == 4


def by_batch(batch):
    """Round to 8 bits by the largest value of the whole batch, as quantised networks do."""
    step = np.abs(batch).max() / 127 or 1.0
    return (np.round(batch / step) * step)[:, :, ::3, ::2].mean(axis=(1, 2, 3))


@pytest.mark.parametrize("model", ["rounds", "depends on batches"])
def test_other_batches_resume_quietly(model, tmp_path, images):
    """Also where an image is explained again, since a part is code of one's own."""
    net = Net().eval() if model == "rounds" else by_batch
    own = {} if model == "rounds" else {"partition": lambda image: Dyadic(2)(image)}  # noqa: PLW0108

    def made(size):
        return explainer(hshap.Batched(net, batch_size=size, check_batches=False), **own)

    dark_and_bright = images * np.linspace(0.1, 1, 6, dtype=np.float32)[:, None, None, None]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        explain(made(32), dark_and_bright[:3], tmp_path, target=0)
        run = explain(made(1), dark_and_bright, tmp_path, target=0)
    assert len(run) == 6
    assert runs.verify(run, made(32), dark_and_bright, target=0).is_sound


def test_black_first_images_hide_no_change(tmp_path, images):
    scan = np.concatenate([np.zeros_like(images[:3]), images])
    explain(explainer(brightest), scan[:5], tmp_path, target=0)
    with pytest.raises(ArgumentError, match=OTHER):
        explain(explainer(lambda batch: brightest(batch) / 2), scan, tmp_path, target=0)


@pytest.mark.parametrize("first", [{}, {"x": np.full((1, 8, 8), np.nan)}], ids=["none", "broken"])
@pytest.mark.parametrize("positives", [None, hshap.Positives(min_score=2.0)])
def test_a_run_that_began_in_vain_knows_its_model(first, positives, tmp_path, images):
    """No image could be scored at first, so the answers of the model are noted later."""

    def run(model, given):
        return runs.explain_dataset(
            explainer(model), {**first, **given}, tmp_path, target=0, positives=positives
        )

    run(brightest, {})
    found = run(brightest, {"a": images[0]})
    assert len(found) + len(found.negatives) == 1
    assert run(brightest, {"a": images[0]}).description == found.description
    named = dict(zip("abcdef", images, strict=True))
    assert runs.verify(found, explainer(brightest), named, target=0).is_sound
    with pytest.raises(ArgumentError, match=OTHER):
        run(passing, named)


def test_loud_answers_to_noise_hide_no_change(tmp_path, images):
    """A regression answers noise by numbers that are far larger than those for images."""

    def model(factor):
        def predict(batch):
            rough = np.abs(np.diff(batch, axis=3)).mean(axis=(1, 2, 3)) > 0.05
            return np.where(rough, 1e6, batch.mean(axis=(1, 2, 3)) * factor)

        return explainer(predict)

    smooth = np.ones_like(images) * np.linspace(0.2, 1, 6, dtype=np.float32)[:, None, None, None]
    smooth[:, :, :, 4:] *= 0.5
    explain(model(1.0), smooth[:3], tmp_path, target=0)
    with pytest.raises(ArgumentError, match=OTHER):
        explain(model(0.8), smooth, tmp_path, target=0)


def test_small_changes_are_told(tmp_path, images):
    explain(explainer(brightest), images[:3], tmp_path, target=0)
    nearly = explainer(lambda batch: brightest(batch) * 1.00003)
    with pytest.warns(RuntimeWarning, match="answers a little differently"):
        explain(nearly, images, tmp_path, target=0)


@pytest.mark.parametrize("given", ["model id", "factory"])
def test_another_model_is_refused(given, tmp_path, images):
    if given == "model id":
        explain(explainer(brightest), images, tmp_path, target=0, model_id="v1")
        with pytest.raises(ArgumentError, match=r"another model_id \('v1' there, 'v2' here\)"):
            explain(explainer(brightest), images, tmp_path, target=0, model_id="v2")
    else:
        explain(lambda: explainer(brightest), images[:3], tmp_path, target=0)
        with pytest.raises(ArgumentError, match=OTHER):
            explain(lambda: explainer(passing), images, tmp_path, target=0)


# Changed code in the settings


def partition_of_ones_own(size, by):
    return {"partition": lambda image: Dyadic(size)(image[:, :, :])}


def search_of_ones_own(size, by):
    return {"search": lambda root, draws: hshap.DepthFirst(tolerance=by)(root, draws)}  # noqa: PLW0108


def baseline_of_ones_own(size, by):
    return {"baseline": lambda image: hshap.protocols.Still(np.full_like(image, by)[None])}


def decoder_of_ones_own(size, by):
    return {
        "decode": lambda data, name: (
            np.frombuffer(data[-256:], np.float32).reshape(1, 8, 8) * np.float32(1 - by / 2)
        )
    }


@pytest.mark.parametrize(
    ("part", "told"),
    [
        (partition_of_ones_own, "made with other settings: explained again"),
        (search_of_ones_own, "made with other settings: explained again"),
        (baseline_of_ones_own, "another model or baseline, or images are read"),
        (decoder_of_ones_own, "images are read otherwise"),
    ],
)
def test_changed_code_of_ones_own_is_refused(part, told, tmp_path, images):
    write(tmp_path / "in", images)

    def run(*given):
        parts = part(*given)
        decode = {key: parts.pop(key) for key in ("decode",) if key in parts}
        made = explainer(brightest, **parts)
        return explain(made, tmp_path / "in", tmp_path / "run", target=0, **decode)

    run(2, 0.0)
    run(2, 0.0)
    with pytest.raises(ArgumentError, match=told):
        run(4, 0.9)


def test_images_that_are_gone_stop_no_check(tmp_path, images):
    """The first is gone and the second is broken: the third is explained again."""
    write(tmp_path / "in", images)
    listed = tmp_path / "list.csv"
    listed.write_text("image\n" + "\n".join(f"in/{n}.npy" for n in range(6)))

    def run(size):
        made = explainer(brightest, partition=lambda image: Dyadic(size)(image[:]))
        return explain(made, listed, tmp_path / "run", target=0)

    assert len(run(2)) == 6
    (tmp_path / "in" / "0.npy").unlink()
    (tmp_path / "in" / "1.npy").write_bytes(b"no image")
    assert [row["image"] for row in run(2).errors] == ["in/1.npy"]
    with pytest.raises(ArgumentError, match=r"explained again, image 'in/2\.npy'"):
        run(4)


def test_two_functions_of_one_name_are_refused(tmp_path, images):
    targets = [lambda outputs: outputs[:, 0], lambda outputs: -outputs[:, 0]]
    with pytest.raises(ArgumentError, match="two functions named"):
        explain(explainer(brightest), images, tmp_path, target=targets)


# A changed image


def write(folder, images):
    folder.mkdir(exist_ok=True)
    for number, image in enumerate(images):
        np.save(folder / f"{number}.npy", image)


def run_of(folder, out):
    return explain(explainer(brightest), folder, out, target=0)


def test_one_row_per_image_after_changes(tmp_path, images):
    """Also after three changes, one of them back to the first content."""
    for images_now in (images, images / 2, images / 4, images):
        write(tmp_path / "in", images_now)
        run = run_of(tmp_path / "in", tmp_path / "run")
        scores = {f"{n}.npy": image.max() for n, image in enumerate(images_now)}
        assert len(run) == 6
        assert {key.image: run[key.image].score for key in run.keys} == pytest.approx(scores)
        assert {row["image"]: row["score"] for row in run.rows()} == pytest.approx(scores)
        told = run.query("select image, score from explanations")
        assert {row["image"]: row["score"] for row in told} == pytest.approx(scores)
        assert len(told) == 6
        assert set(run.boxes()) == {(image, "0") for image in scores}
        assert run.errors == []
    assert len(run.history) == 18
    assert runs.verify(run).is_sound
    assert len(run_of(tmp_path / "in", tmp_path / "run").history) == 18


def test_a_broken_or_missing_image_is_told(tmp_path, images):
    write(tmp_path / "in", images)
    run_of(tmp_path / "in", tmp_path / "run")
    (tmp_path / "in" / "2.npy").write_bytes(b"no image")
    run = run_of(tmp_path / "in", tmp_path / "run")
    assert [row["image"] for row in run.errors] == ["2.npy"]
    assert "2.npy" not in {key.image for key in run.keys}
    write(tmp_path / "in", images)
    run = run_of(tmp_path / "in", tmp_path / "run")
    assert run.errors == []
    assert len(run) == 6
    # One that is missing may be back tomorrow: nothing says that its content has changed.
    listed = tmp_path / "list.csv"
    listed.write_text("image\n" + "\n".join(f"in/{n}.npy" for n in range(6)))
    run_of(listed, tmp_path / "listed")
    (tmp_path / "in" / "2.npy").unlink()
    assert len(run_of(listed, tmp_path / "listed")) == 6


def test_the_last_error_counts_after_a_clock_is_set_back(tmp_path, images, monkeypatch):
    write(tmp_path / "in", images[:1])

    def run(reason, moment):
        def decode(data, name):
            raise ValueError(reason)

        monkeypatch.setattr(time, "time", lambda: moment)
        given = (explainer(brightest), tmp_path / "in", tmp_path / "run")
        return explain(*given, target=0, decode=decode, retry_failed=True)

    assert "first" in run("first", 2e9).errors[0]["reason"]
    assert "second" in run("second", 1e9).errors[0]["reason"]
    assert "third" in run("third", 1.5e9).errors[0]["reason"]


# Forged runs


@pytest.fixture
def sealed(tmp_path, images):
    write(tmp_path / "in", images)
    run = run_of(tmp_path / "in", tmp_path / "run")
    return run, runs.verify(run).seal


def rows_of(run):
    return list(run.rows())


def with_digest(row):
    return {**row, "digest": digest_of(row)}


def add_shard(run, change):
    """Add a shard of an unknown writer, whose rows shadow the true ones; all digests fit."""
    rows = [with_digest({**row, **change(row)}) for row in rows_of(run)]
    ShardWriter(run.folder.files).commit("explanations", rows)


def replace_shards(run, change):
    """Write all rows anew, with digests, and seal them."""
    rows = [with_digest({**row, **change(row)}) for row in rows_of(run)]
    for shard in run.shards["explanations"]:
        run.folder.files.remove(shard.name)
    shutil.rmtree(Path(run.folder.files.location, "seals"))
    ShardWriter(run.folder.files).commit("explanations", rows)
    run.folder.seal()


def edit_run_json(run, reseal):
    path = Path(run.folder.files.location, "run.json")
    found = json.loads(path.read_text())
    found["settings"]["parts"]["search"] = "another"
    path.write_text(json.dumps(found))
    if reseal:
        run.folder.seal()


FORGERIES = {
    "an added shard": lambda run: add_shard(run, lambda row: {"version": 1}),
    "an added copy": lambda run: add_shard(run, lambda row: {}),
    "an added and sealed shard": lambda run: (
        add_shard(run, lambda row: {"version": 1}),
        run.folder.seal(),
    ),
    "run.json": lambda run: edit_run_json(run, reseal=False),
    "run.json, sealed again": lambda run: edit_run_json(run, reseal=True),
    "replaced rows": lambda run: replace_shards(run, lambda row: {"path": "elsewhere"}),
    "a removed shard": lambda run: run.folder.files.remove(run.shards["explanations"][0].name),
    "removed seals": lambda run: shutil.rmtree(Path(run.folder.files.location, "seals")),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_noted_seal_shows_forgeries(name, sealed):
    run, seal = sealed
    assert runs.verify(run, seal=seal).is_sound
    FORGERIES[name](run)
    assert not runs.verify(runs.open(run.folder.files), seal=seal).is_sound


FORGED = {
    "score": lambda row: row["score"] + 0.5,
    "boxes": lambda row: [],
    "doubt": lambda row: 0.123,
    "concerns": lambda row: ["made up"],
    "baseline_score": lambda row: -1.0,
    "evaluations": lambda row: 1,
    "complete": lambda row: not row["complete"],
    "audit": lambda row: "{}",
    "class_index": lambda row: 7,
    "target": lambda row: "1",
    "image_sha256": lambda row: hashlib.sha256(b"other").hexdigest(),
}


def test_forged_columns_are_found_without_a_seal(sealed):
    run, _ = sealed
    (sound,) = run.shards["explanations"]
    before = run.folder.files.read(sound.name)
    for column, forge in FORGED.items():
        replace_shards(run, lambda row: {column: forge(row)})  # noqa: B023, it is called here
        found = runs.verify(runs.open(run.folder.files))
        assert len(found.problems) == 6, column
        assert all("row of image" in line for line in found.problems)
        shutil.rmtree(Path(run.folder.files.location, "explanations"))
        run.folder.files.write(sound.name, before)


def test_a_sealed_run_that_goes_on_says_so(sealed, tmp_path, images):
    run, seal = sealed
    np.save(tmp_path / "in" / "new.npy", images[0])
    more = run_of(tmp_path / "in", tmp_path / "run")
    assert runs.verify(more).is_sound
    found = runs.verify(more, seal=seal)
    assert found.problems
    assert all("came after the seal" in line for line in found.problems)
    add_shard(run, lambda row: {})
    found = runs.verify(runs.open(run.folder.files))
    assert found.unsealed == 1
    assert "1 shard came after it" in str(found)


# The commands

MODULE = """
from pathlib import Path
import numpy as np
def model(batch):
    scale = float(Path("scale.json").read_text())  # the name of the model does not show it
    score = batch.max(axis=(1, 2, 3)) * scale
    return np.stack([score, 1 - score], axis=1)
def by_batch(batch):
    step = abs(batch).max() / 127 or 1.0
    found = model((batch / step).round() * step)
    return found + 0.1 * ((batch / step).round() * step)[:, :, ::3].mean(axis=(1, 2, 3))[:, None]
"""
METHOD = (*GIVEN[1:], "--target", 0)


def save_onnx(factor):
    """Write a model whose weight is in a file beside it, which the .onnx only names."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    weight = np.zeros((768, 2), np.float32)
    weight[:, 0] = factor / 100
    graph = helper.make_graph(
        [
            helper.make_node("Flatten", ["image"], ["flat"]),
            helper.make_node("MatMul", ["flat", "weight"], ["scores"]),
        ],
        "model",
        [helper.make_tensor_value_info("image", floats, ["n", 3, 16, 16])],
        [helper.make_tensor_value_info("scores", floats, ["n", 2])],
        [onnx.numpy_helper.from_array(weight, "weight")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    Path("model.data").unlink(missing_ok=True)
    beside = {"save_as_external_data": True, "location": "model.data", "size_threshold": 0}
    onnx.save_model(made, "model.onnx", **beside)


def save_scale(factor):
    written("scale.json", str(factor))


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module whose model reads a file, next to four images."""
    with folder_of_user(tmp_path, monkeypatch, MODULE) as name:
        for number in range(4):
            picture(f"images/{number}.png", 100 + 30 * number, column=2 * number)
        save_scale(1.0)
        yield name


@pytest.mark.usefixtures("blank_pictures")
@pytest.mark.parametrize("kind", ["onnx", "module"])
def test_commands_see_a_changed_model(module, kind):
    """The name and the main file of the model stay the same."""
    save, model = (save_onnx, "model.onnx") if kind == "onnx" else (save_scale, f"{module}:model")
    save(1.0)
    slide = np.random.default_rng(0).integers(0, 255, (3, 48, 48)).astype(np.uint8)
    np.save("slide.npy", slide[:, :16, :16] if kind == "onnx" else slide)
    first, method = ("images/0.png", "images/1.png"), ("-m", model, *METHOD)
    explain = ("explain", *method, "-o", "found")
    tiles = ("tiles", "slide.npy", "-m", model, "-o", "TILES", "--side", 16, "--target", 0)
    tiles += ("--baseline", "constant:0")
    fine("run", "images", *method, "-o", "RUN")
    fine(*explain, *first)
    fine(*tiles)
    save(1.0)
    fine("run", "images", *method, "-o", "RUN")
    fine(*explain, "images")
    fine(*tiles)
    save(0.5)
    assert OTHER in fine("run", "images", *method, "-o", "RUN", code=2).stderr
    told = fine("verify", "RUN", "images", "-m", model, code=3).stderr
    assert "the run was made with another model" in told
    assert OTHER in fine(*explain, "images", code=2).stderr
    assert OTHER in fine(*tiles, code=2).stderr


@pytest.mark.usefixtures("blank_pictures")
def test_resumed_commands_allow_for_batches(module):
    """The model's score depends on the batch, and is another one if it has changed."""
    image = pytest.importorskip("PIL.Image")
    for number, level in enumerate((12, 90, 170, 255)):
        noise = np.random.default_rng(number).integers(0, level, (16, 16, 3), np.uint8)
        image.fromarray(noise).save(f"images/{number}.png")
    given = ("explain", "images", "-m", f"{module}:by_batch", "-o", "found", *METHOD, "--all")
    fine(*given)
    fine(*given)
    save_scale(0.5)
    assert OTHER in fine(*given, code=2).stderr
