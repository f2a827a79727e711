"""One map for every front: `.plot()`, the command's picture, the page and a notebook show it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib import colormaps
from pages import page_map
from PIL import Image
from typer.testing import CliRunner

import hshap
from hshap.cli.app import app
from hshap.errors import ArgumentError
from hshap.explanation.display import heading, map_as_html
from hshap.export.page.tables import class_table

CELL, SIDE = 4, 32


def pixels():
    """Return a dark picture in eight bits with two bright, red squares."""
    image = np.full((SIDE, SIDE, 3), 30, np.uint8)
    image[4:12, 8:12] = (240, 60, 40)
    image[20:24, 20:28] = (200, 50, 50)
    return image


def numbers():
    return np.moveaxis(pixels(), -1, 0).astype(np.float32) / np.float32(255)


def red_cells(batch):
    """Return the logits of two classes: red cells of the image, and none."""
    red = np.maximum(batch[:, 0] - batch[:, 1] - batch[:, 2] / 2, 0.0)
    cells = red.reshape(len(batch), SIDE // CELL, CELL, SIDE // CELL, CELL).mean(axis=(2, 4))
    logit = cells.sum(axis=(1, 2)) / 2
    return np.stack([logit, -logit], axis=1)


def torch_module():
    torch = pytest.importorskip("torch")

    class Red(torch.nn.Module):
        def forward(self, x):
            red = torch.relu(x[:, 0] - x[:, 1] - x[:, 2] / 2)
            logit = torch.nn.functional.avg_pool2d(red[:, None], CELL).sum((1, 2, 3)) / 2
            return torch.stack([logit, -logit], dim=1)

    return Red().eval()


def onnx_file(path):
    """Write the same network as ONNX: a convolution makes the red cells."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    arrays = {
        "mix": np.array([1, -1, -0.5], np.float32).reshape(1, 3, 1, 1),
        "weight": np.array([[1], [-1]], np.float32) / (2 * CELL**2),
        "bias": np.zeros(2, np.float32),
        "axes": np.array([2, 3], np.int64),
    }
    nodes = [
        helper.make_node("Conv", ["x", "mix"], ["red"]),
        helper.make_node("Relu", ["red"], ["positive"]),
        helper.make_node("ReduceSum", ["positive", "axes"], ["sum"], keepdims=0),
        helper.make_node("Gemm", ["sum", "weight", "bias"], ["y"], transB=1),
    ]
    floats = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "red",
        [helper.make_tensor_value_info("x", floats, ["n", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("y", floats, ["n", 2])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    return path


def session(tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    return runtime.InferenceSession(onnx_file(tmp_path / "red.onnx"))


FRONTS = {
    "callable": lambda tmp_path: red_cells,
    "torch": lambda tmp_path: torch_module(),
    "ONNX": session,
}


def explained(model, **options):
    options = {
        "baseline": hshap.Constant(0.0),
        "partition": hshap.Dyadic(CELL),
        **options,
    }
    return hshap.Explainer(model, **options).explain(numbers(), target=0)


def drawn(figure):
    """Return the image and the map of a figure's first axes."""
    image, heat = figure.axes[0].images
    return np.asarray(image.get_array()), np.asarray(heat.get_array())


@pytest.mark.parametrize("front", FRONTS)
def test_every_kind_of_model_has_the_picture(front, tmp_path):
    """The attribution over the grey image, with one title and unit for all."""
    made, expected = explained(FRONTS[front](tmp_path)), explained(red_cells).plot(numbers())
    figure = made.plot(numbers())
    image, heat = drawn(figure)
    assert np.array_equal(heat, made.attribution())
    assert heat.sum() == pytest.approx(made.score - made.baseline_score - made.residual)
    assert np.allclose(image, np.tensordot([0.299, 0.587, 0.114], numbers(), 1))
    np.testing.assert_allclose(heat, drawn(expected)[1], atol=1e-6)
    assert figure.axes[0].get_title() == expected.axes[0].get_title()
    assert figure.axes[1].get_ylabel() == expected.axes[1].get_ylabel()


def test_the_command_draws_the_map_of_its_result(tmp_path, monkeypatch):
    Image.fromarray(pixels()).save(tmp_path / "red.png")
    onnx_file(tmp_path / "red.onnx")
    figures = []
    monkeypatch.setattr(
        "matplotlib.figure.Figure.savefig",
        lambda figure, path, **_: figures.append(figure) or Path(path).write_bytes(b"png"),
    )
    words = ["explain", str(tmp_path / "red.png"), "--model", str(tmp_path / "red.onnx")]
    words += ["--target", "0", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    made = hshap.Explanation.load(tmp_path / "out" / "red.npz")
    image, heat = drawn(figures[0])
    assert np.array_equal(heat, made.attribution())
    assert np.allclose(image, np.tensordot([0.299, 0.587, 0.114], numbers(), 1), atol=1e-6)
    assert figures[0].axes[0].get_title() == f"red.png: {heading(made)}"
    assert made.probability == pytest.approx(1 / (1 + np.exp(-2 * made.score)))


def test_the_page_holds_the_attribution():
    made = explained(red_cells)
    found, error = page_map(class_table("red", made)["map"], made.grid)
    assert (np.abs(found - made.attribution()) <= error + 1e-12).all()
    nothing = explained(lambda batch: np.zeros(len(batch)))
    assert class_table("none", nothing)["map"] is None


def test_a_notebook_shows_the_attribution():
    made = explained(red_cells)
    (shown,) = re.findall(r"base64,([^\"]+)", made._repr_html_())
    (expected,) = re.findall(r"base64,([^\"]+)", map_as_html(made.attribution(), ""))
    assert shown == expected


def test_a_spin_shows_its_mean_and_class():
    explainer = hshap.Explainer(
        red_cells, baseline=hshap.Constant(0.0), partition=hshap.Dyadic(CELL)
    )
    spun = hshap.cycle_spin(explainer, numbers(), target=0, shifts=[0, 1])
    figure = spun.plot(numbers())
    assert np.array_equal(drawn(figure)[1], spun.attribution())
    assert figure.axes[0].get_title().endswith("%: mean of 2 explanations")
    assert "Spin of 2 explanations" in repr(spun)


def test_titles_are_for_people():
    made = explained(red_cells)
    axes = made.plot(numbers()).axes
    assert axes[0].get_title() == "class 0, 90 %: 2 findings"
    assert axes[0].get_xlabel() == ""
    assert axes[0].collections[:] == []  # no outlines
    assert axes[1].get_ylabel() == "score per 100 pixels\n1.12 in total"
    named = replace(made, settings=made.settings.updated(source={"class": "red $x$"}))
    assert named.plot().axes[0].get_title() == r"red \$x\$, 90 %: 2 findings"
    assert "evaluations" in made.plot(numbers(), numbers=True).axes[0].get_xlabel()
    other = made.plot(numbers(), heat=made.coefficients(), title="mine")
    assert [one.get_title() for one in other.axes] == ["mine", ""]
    assert other.axes[1].get_ylabel() == "value"


@pytest.mark.parametrize(
    ("model", "target", "expected"),
    [
        (lambda batch: np.full((len(batch), 2), 0.25) + batch[:, :2, 5, 9] / 4, 0, 0.25 + 60 / 255),
        (lambda batch: np.stack([batch[:, 0, 5, 9], -batch[:, 0, 5, 9]], 1) * 51, 0, 1.0),
        (lambda batch: batch[:, 0, 5, 9] * 2.55, 0, 1 / (1 + np.exp(-2.4))),
        (red_cells, hshap.Output(1, "sigmoid"), None),
        (red_cells, lambda outputs: outputs[:, 0], None),
    ],
)
def test_probabilities_follow_the_outputs(model, target, expected):
    made = hshap.Explainer(
        model, baseline=hshap.Constant(0.0), partition=hshap.Dyadic(CELL)
    ).explain(numbers(), target=target)
    if isinstance(target, hshap.Output):
        expected = made.score
    assert made.probability == (None if expected is None else pytest.approx(expected))
    assert replace(made, settings=made.settings.updated(probability="9")).probability is None


def test_negative_values_get_two_colours():
    made = explained(red_cells)
    heat = made.attribution()
    mapped = made.plot(numbers(), heat=heat).axes[0].images[1]
    assert mapped.get_clim() == (0.0, heat.max())
    heat[0, 0] = -2 * heat.max()
    mapped = made.plot(numbers(), heat=heat).axes[0].images[1]
    assert mapped.get_clim() == (-np.abs(heat).max(), np.abs(heat).max())
    assert mapped.cmap(0.5)[3] == 0.0  # nothing hides the image where the map is 0
    assert mapped.cmap(0.0)[2] > mapped.cmap(0.0)[0]
    assert mapped.cmap(1.0)[0] > mapped.cmap(1.0)[2]


def test_colours_and_opacity_are_the_caller_s():
    made = explained(red_cells)
    mapped = made.plot(numbers(), cmap="viridis", alpha=0.25).axes[0].images[1]
    assert mapped.cmap(1.0) == (*colormaps["viridis"](1.0)[:3], 0.25)
    again = made.plot(numbers(), cmap=colormaps["viridis"]).axes[0].images[1]
    assert again.cmap(1.0)[:3] == mapped.cmap(1.0)[:3]
    for wrong in ("nowhere", 3):
        with pytest.raises(ArgumentError, match=r"cmap is .*; pass the name of a colour map"):
            made.plot(numbers(), cmap=wrong)
    for wrong in (2, -0.1, "much", True):
        with pytest.raises(ArgumentError, match="alpha must be a finite number from 0 to 1, got"):
            made.plot(numbers(), alpha=wrong)
    with pytest.raises(ArgumentError, match="outlines must be True or False, got 1"):
        made.plot(numbers(), outlines=1)
