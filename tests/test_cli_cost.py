"""`hshap cost` and `hshap doctor`: the cost that is predicted is paid, and a machine is checked."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import demo_network, fine, folder_of_user, picture, pixels, written

import hshap

DEMO = ("-m", "model.onnx")
QUADTREE = ("-t", 0, "--partition", "quadtree", "--min-size", 50)


def told(*words):
    return json.loads(fine(*words, "--json").stdout)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a model and two images of its size."""
    with folder_of_user(tmp_path, monkeypatch):
        written("model.onnx", demo_network())
        for file, column in (("blot", 4), ("cell", 60)):
            picture(f"images/{file}.png", size=(100, 120), column=column)
        picture("mean.png", 100, size=(100, 120))
        yield


# Formulas


def counted(image, partition, search=None):
    explainer = hshap.Explainer(
        lambda batch: (batch > 0.5).any(axis=(1, 2, 3)).astype(float),
        hshap.Constant(0.0),
        partition,
        **({"search": search} if search else {}),
    )
    return explainer.explain(image, 0).evaluations


@pytest.mark.parametrize(
    ("name", "partition"), [("quadtree", hshap.Dyadic), ("bisection", hshap.Bisection)]
)
def test_the_predicted_cost_is_paid(rng, name, partition):
    findings, taken = 3, []
    words = ("--size", 32, "--min-size", 2, "--partition", name, "-k", findings)
    predicted = told("cost", *words, "--budget", 10**6)
    assert predicted["leaves"] == 256
    for _ in range(60):
        image = np.zeros((1, 32, 32))
        # Each leaf matters with the chance that gives as many findings on average.
        image[0, ::2, ::2] = rng.random((16, 16)) < findings / 256
        taken.append(counted(image, partition(2)))
    spread = np.std(taken) / np.sqrt(len(taken))
    cost = predicted["evaluations"]
    assert abs(np.mean(taken) - cost["expected"]) < 3.5 * spread + 0.5
    corners = np.zeros((1, 32, 32))
    corners[0, [0, 0, 31], [0, 31, 0]] = 1
    assert counted(corners, partition(2)) <= cost["most"] <= cost["bound_of_the_paper"] + 2


@pytest.mark.parametrize("findings", [1, 4, 12])
def test_the_predicted_cost_of_groups_is_paid(rng, findings):
    words = ("--size", 64, "--min-size", 2, "--partition", "bisection", "--search", "group")
    cost = told("cost", *words, "-k", findings, "--budget", 10**6)["evaluations"]
    taken = []
    for _ in range(6):
        image = np.zeros((1, 32, 32))
        image.reshape(-1)[rng.choice(1024, findings, replace=False)] = 1.0
        whole = image.repeat(2, axis=1).repeat(2, axis=2)
        taken.append(counted(whole, hshap.Bisection(2), hshap.GroupTesting()))
    assert abs(np.mean(taken) / cost["expected"] - 1) < 0.12
    assert max(taken) <= cost["most"]


def test_no_findings_take_four_evaluations():
    assert "evaluations" in fine("cost", "--size", "64").stdout
    # the image, the baseline and both halves
    assert told("cost", "--size", "64", "-k", 0)["evaluations"]["most"] == 4


# Samples


@pytest.mark.usefixtures("here")
def test_cost_measures_the_model():
    found = told("cost", *DEMO, "-k", 6, "--images", 5)
    assert found["size"] == [100, 120]
    assert found["seconds"]["expected"] > 0
    assert [other["batch_size"] for other in found["alternatives"]] == [1, 8]
    assert all(other["seconds"] > 0 for other in found["alternatives"])
    assert found["evaluations"]["expected"] <= found["evaluations"]["most"]


@pytest.mark.usefixtures("here", "blank_pictures")
@pytest.mark.parametrize("templates", [False, True])
def test_a_sample_costs_what_explaining_costs(templates):
    options = (*DEMO, "-t", 1, "--all", "--partition", "bisection", "--min-size", 20)
    if templates:
        for name in ("blot", "cell"):
            Path("templates").mkdir(exist_ok=True)
            shutil.copy("mean.png", f"templates/{name}.png")
        options = (*options, "--template", "templates")
    else:
        options = (*options, "--baseline", "mean.png")
    found = told("cost", "images", *options)
    fine("explain", "images", *options)
    record = json.loads(Path("hshap-output/summary.json").read_text())
    assert found["images"] == found["sampled"] == 2
    # The images of a run share the score of a given baseline; those of a sample do in part.
    assert found["evaluations"]["expected"] == pytest.approx(record["evaluations"], rel=0.05)
    assert found["evaluations"]["low"] <= found["evaluations"]["expected"]
    assert found["seconds"]["expected"] > 0
    if not templates:
        tenfold = told("cost", "images", *options, "--images", 20)["evaluations"]["expected"]
        assert tenfold == 10 * found["evaluations"]["expected"]


@pytest.mark.usefixtures("here")
def test_a_sample_of_one_has_no_range():
    words = ("cost", "images", *DEMO, *QUADTREE, "--sample", 1)
    found = told(*words)
    (count,) = found["sampled_evaluations"]
    assert found["evaluations"] == {"expected": 2 * count, "low": None, "high": None}
    assert found["seconds"]["low"] is found["seconds"]["high"] is None
    assert "range" not in fine(*words).stdout


@pytest.mark.usefixtures("here")
def test_bad_images_are_left_out_of_samples():
    written("images/a.png", "no image")
    done = fine("cost", "images", *DEMO, *QUADTREE, "--json", code=7)
    assert "left out of the sample: images/a.png" in done.stderr
    found = json.loads(done.stdout)
    assert (found["images"], found["sampled"]) == (3, 2)
    # Only images of the sample are read.
    sizes = {told("cost", "images", *DEMO, *QUADTREE, "--sample", 1)["images"]}
    assert sizes == {3}


@pytest.mark.usefixtures("here")
def test_an_image_that_the_model_refuses_is_named():
    mark = pixels("images/cell.png").astype(float)[0].sum(), 60
    assert mark[0] == 0
    written(
        "picky.py",
        "def picky(batch):\n"
        "    if batch[0, :, 4:8, 60:64].min() == 1:\n"
        "        raise ValueError('not this one')\n"
        "    return batch.max(axis=(2, 3))\n",
    )
    done = fine(
        *("cost", "images", "-m", "picky:picky", "--partition", "quadtree", "--min-size", 50),
        code=7,
    )
    sys.modules.pop("picky")
    assert "left out of the sample: images/cell.png" in done.stderr
    assert "not this one" in done.stderr
    assert "by a sample of 1" in done.stdout


# The doctor


def test_the_doctor_finds_this_machine_well(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    found = told("doctor")
    assert found["healthy"]
    assert found["packages"]["numpy"] == np.__version__
    assert found["conflicts"] == []
    assert found["missing"]["torch"] == []
    assert len(found["speed"]) >= 4
    assert all(gain["how"] and (gain["times"] or 1) > 0 for gain in found["speed"])
    assert any("channels last" in gain["setting"] for gain in found["speed"])
    assert torch.get_num_threads() == threads
    # Another package with our name is named, and how to be rid of it.
    written(tmp_path / "h_shap-0.1.6.dist-info/METADATA", "Name: h-shap\nVersion: 0.1.6\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    done = fine("doctor")
    assert "passed" in done.stdout
    (line,) = [line for line in done.stderr.splitlines() if "h-shap 0.1.6" in line]
    assert "pip uninstall h-shap" in line
