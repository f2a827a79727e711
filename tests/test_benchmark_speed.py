"""The speed stack: committed pages follow from the measurements, and the parts work."""

from __future__ import annotations

import importlib
import inspect
import json
from dataclasses import asdict

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import hshap
from benchmarks.models.names import NARROW, ZOO
from benchmarks.models.resnet import ResNet18
from benchmarks.models.zoo import NETWORKS, made
from benchmarks.speed import own_cost, own_cost_page, process, speed_goals, speed_page, speed_table
from benchmarks.speed.cases import Case, scene
from benchmarks.speed.explaining import Decided
from benchmarks.speed.measurements import growth
from benchmarks.speed.speed_table import FOLDER, RESULTS
from hshap.evaluators.incremental.patches import Patch
from hshap.evaluators.incremental.traced_network import Network


@pytest.fixture(scope="module")
def content():
    return json.loads(RESULTS.read_text())


def test_the_committed_page_is_made_of_the_committed_measurements(content):
    assert content["goals"] == [asdict(goal) for goal in speed_goals.judged(content["measured"])]
    assert (FOLDER / "speed.md").read_text() == speed_page.markdown(content)


def test_the_committed_own_cost_is_made_of_its_measurements():
    stored = json.loads((FOLDER / "own_cost.json").read_text())
    summary = own_cost_page.summarise(stored["measurements"])
    goals = own_cost_page.goals(summary)
    assert stored["summary"] == summary
    assert stored["goals"] == [asdict(goal) for goal in goals]
    page = own_cost_page.markdown(stored["about"], summary, goals)
    assert (FOLDER / "own_cost.md").read_text() == page


def test_a_goal_that_falls_short_is_printed_as_such(content):
    worse = json.loads(json.dumps(content["measured"]))
    for name, taken in worse.items():
        for each in taken if name.startswith("ours") else ():
            each["seconds"] *= 100
    first, second, *_ = speed_goals.judged(worse)
    assert not first.met
    assert not second.met
    assert "**not met**" in speed_page.markdown({**content, "goals": [asdict(first)]})


@pytest.mark.parametrize(("ratio", "met"), [(0.95, True), (0.85, False)])
def test_the_command_line_is_judged_by_its_slowest_case(content, ratio, met):
    taken = {"best": "--batch-size 32", "found_wall": 2.0, "tuned_wall": 1.9, "cpu_ratio": 1.0}
    found = {
        f"command line, {name}": [{"network": name, "ratio": one, **taken}]
        for name, one in (("ConvNet", 1.2), ("FCN", ratio))
    }
    (goal,) = (
        goal
        for goal in speed_goals.judged({**content["measured"], **found})
        if "as a user finds the machine" in goal.case and "hshap explain" in goal.case
    )
    assert goal.met is met
    assert "ConvNet 120%" in goal.reached


def test_every_task_calls_a_measurement_with_arguments_that_it_takes():
    plan = own_cost.Plan(1, large_reference=True)
    tasks = [own_cost.worker_task(task) for task in plan.tasks()]
    tasks += [dict(task) for _, task, _ in speed_table.tasks()]
    for task in tasks:
        module, _, function = task.pop("measure").partition(".")
        measurements = importlib.import_module(f"benchmarks.speed.measurements.{module}")
        inspect.signature(getattr(measurements, function)).bind(**task)


def test_a_measurement_in_a_process_of_its_own_records_memory_and_others():
    found = process.run_alone({"measure": "growth.by_side", "side": 64})
    assert found["evaluations"] == 64
    assert 0.01 < found["peak_gb"] < 10
    assert 0 <= found["others_cpu"] <= 1


def test_a_measurement_that_fails_is_told(capfd):
    assert "failed" in process.run_alone({"measure": "growth.by_side", "side": -1})
    assert "Error" in capfd.readouterr().err


def test_the_floor_is_the_bits_that_name_the_findings():
    assert growth.floor(4096, 1) == pytest.approx(12)
    assert growth.floor(4, 2) == pytest.approx(np.log2(6))
    rows = growth.by_findings(16)["rows"]
    assert all(row["evaluations"] >= row["floor"] for row in rows)


@pytest.mark.parametrize("partition", ["Bisection", "Dyadic"])
def test_the_oracle_decides_and_the_network_computes(partition):
    case = Case("small", (3, 96, 128), 3, 16)
    drawn = scene(case, 0)
    inputs = []

    class Seen(hshap.Batched):
        def open_session(self):
            session = super().open_session()
            score = session.score
            session.score = lambda rows: (inputs.append(len(rows)), score(rows))[1]
            return session

    network = ResNet18(2).eval()
    found = []
    for inner in (Seen(network), hshap.Incremental(network)):
        explainer = hshap.Explainer(
            Decided(inner, drawn),
            baseline=hshap.Fixed(drawn.baseline),
            partition=getattr(hshap, partition)(case.min_size),
        )
        found.append(explainer.explain(drawn.image, target=0))
    assert sum(inputs) == found[0].evaluations
    assert np.array_equal(found[0].saliency(), found[1].saliency())
    marked = found[0].saliency() > 0
    assert marked[drawn.rows, drawn.columns].all()


@pytest.mark.parametrize("name", [n for n in (*ZOO, *NARROW) if n != "EfficientNet-lite0"])
def test_networks_of_known_kinds_agree_with_the_whole(name):
    assert tuple(NETWORKS) == (*ZOO, *NARROW)
    model = made(name)
    network = Network(model)
    anchor = torch.rand(1, 3, 64, 96)
    patch = Patch(torch.rand(2, 3, 24, 40), ((0, 3), (40, 56)), anchor)
    with torch.inference_mode():
        activations, _ = network.activations(anchor.clone())
        expected, found = model(patch.full()), network.run(patch, activations)
    assert not network.reason
    assert torch.allclose(found, expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))
