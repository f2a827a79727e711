"""ONNX files become torch modules with the scores of onnxruntime, or are refused in one line."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
from networks import network
from onnx import TensorProto, helper, numpy_helper

from hshap import (
    ArgumentError,
    Bisection,
    Constant,
    CostPolicy,
    Explainer,
    Incremental,
    ModelError,
    from_onnx,
)

RNG = np.random.default_rng(0)
GRID = (12, 15)
IMAGE = RNG.random((4, *GRID), dtype=np.float32)


def weights(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def ints(*values):
    return np.array(values, np.int64)


def saved(folder, nodes, constants=(), *, head=True):
    """Save a file of nodes from `x` to `y`, by default followed by a mean over all places."""
    last = [helper.make_node("GlobalAveragePool", ["y"], ["m"])] if head else []
    last += [helper.make_node("Flatten", ["m" if last else "y"], ["scores"])]
    graph = helper.make_graph(
        [*nodes, *last],
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *IMAGE.shape])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in dict(constants).items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    path = folder / "net.onnx"
    onnx.save(made, path)
    return path


def one(kind, *names, **options):
    return helper.make_node(kind, ["x", *names], ["y"], **options)


OPERATORS = {
    "Conv": (
        [one("Conv", "w", "b", pads=[1, 2, 1, 2], strides=[2, 1], dilations=[1, 2], group=2)],
        {"w": weights(6, 2, 3, 3), "b": weights(6)},
    ),
    "Conv, padded on one side": (
        [one("Conv", "w", pads=[0, 1, 2, 1])],
        {"w": weights(5, 4, 3, 2)},
    ),
    "BatchNormalization": (
        [one("BatchNormalization", "s", "b", "mu", "v", epsilon=1e-3)],
        {"s": weights(4), "b": weights(4), "mu": weights(4), "v": abs(weights(4)) + 0.5},
    ),
    "MaxPool": (
        [one("MaxPool", kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 0], ceil_mode=1)],
        {},
    ),
    "MaxPool, padded on one side": (
        [one("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1])],
        {},
    ),
    "AveragePool": ([one("AveragePool", kernel_shape=[2, 2], strides=[2, 1])], {}),
    "AveragePool, padding": (
        [one("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=0)],
        {},
    ),
    "AveragePool, padding counted": (
        [one("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)],
        {},
    ),
    "MatMul, channels last": (
        [
            helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 3, 1]),
            helper.make_node("LayerNormalization", ["t", "s", "b"], ["l"], axis=-1),
            helper.make_node("MatMul", ["l", "w"], ["u"]),
            helper.make_node("Transpose", ["u"], ["y"], perm=[0, 3, 1, 2]),
        ],
        {"s": weights(4), "b": weights(4), "w": weights(4, 6)},
    ),
    "InstanceNormalization": (
        [one("InstanceNormalization", "s", "b")],
        {"s": weights(4), "b": weights(4)},
    ),
    "Clip": ([one("Clip", "low", "high")], {"low": np.float32(0.2), "high": np.float32(0.6)}),
    "Clip, ReLU6": ([one("Clip", "low", "high")], {"low": np.float32(0), "high": np.float32(6)}),
    "HardSigmoid": ([one("HardSigmoid", alpha=0.3, beta=0.1)], {}),
    "HardSwish": ([one("HardSwish")], {}),
    "PRelu": ([one("PRelu", "w")], {"w": weights(4, 1, 1)}),
    "LeakyRelu": ([one("LeakyRelu", alpha=0.3)], {}),
    "Elu": ([one("Elu", alpha=0.7)], {}),
    "Softmax": ([one("Softmax", axis=1)], {}),
    "ReduceMean over channels": ([one("ReduceMean", "a", keepdims=1)], {"a": ints(1)}),
    "ReduceMax": ([one("ReduceMax", "a", keepdims=1)], {"a": ints(2)}),
    "Pad": ([one("Pad", "p", "v")], {"p": ints(0, 0, 1, 2, 0, 0, 3, 0), "v": np.float32(0.4)}),
    "Resize": (
        [one("Resize", "", "s", mode="linear", coordinate_transformation_mode="half_pixel")],
        {"s": np.array([1, 1, 2, 3], np.float32)},
    ),
    "Resize, nearest": (
        [
            helper.make_node(
                "Resize",
                ["x", "", "s"],
                ["y"],
                mode="nearest",
                nearest_mode="floor",
                coordinate_transformation_mode="asymmetric",
            )
        ],
        {"s": np.array([1, 1, 2, 2], np.float32)},
    ),
    "Resize to a size": (
        [one("Resize", "", "", "n", mode="linear", coordinate_transformation_mode="half_pixel")],
        {"n": ints(1, 4, 24, 30)},
    ),
    "Concat": ([helper.make_node("Concat", ["x", "x"], ["y"], axis=1)], {}),
    "Mul by a constant": ([one("Mul", "c")], {"c": weights(1, 4, 1, 1)}),
    "Pow": ([one("Pow", "two")], {"two": np.float32(2)}),
    "Gelu by Erf": (
        [
            helper.make_node("Div", ["x", "r"], ["d"]),
            helper.make_node("Erf", ["d"], ["e"]),
            helper.make_node("Add", ["e", "o"], ["p"]),
            helper.make_node("Mul", ["x", "p"], ["y"]),
        ],
        {"r": np.float32(2**0.5), "o": np.float32(1)},
    ),
    "a gate": (
        [
            helper.make_node("GlobalAveragePool", ["x"], ["p"]),
            helper.make_node("Sigmoid", ["p"], ["g"]),
            helper.make_node("Mul", ["x", "g"], ["y"]),
        ],
        {},
    ),
    "a constant computed from others": (
        [helper.make_node("Add", ["c", "c"], ["d"]), one("Mul", "d")],
        {"c": weights(4, 1, 1)},
    ),
}
HEADS = {
    "Gemm": (
        [
            helper.make_node("Flatten", ["x"], ["f"]),
            helper.make_node("Gemm", ["f", "w", "b"], ["y"], transB=1, alpha=0.5, beta=2.0),
        ],
        {"w": weights(3, 720), "b": weights(3)},
    ),
    "Reshape by the shape": (
        [
            helper.make_node("Shape", ["x"], ["s"]),
            helper.make_node("Gather", ["s", "zero"], ["n"], axis=0),
            helper.make_node("Concat", ["n", "rest"], ["to"], axis=0),
            helper.make_node("Reshape", ["x", "to"], ["f"]),
            helper.make_node("MatMul", ["f", "w"], ["y"]),
        ],
        {"zero": ints(0), "rest": ints(-1), "w": weights(720, 3)},
    ),
    "ReduceMean over places": (
        [one("ReduceMean", "a", keepdims=0)],
        {"a": ints(2, 3)},
    ),
    "Squeeze": (
        [
            helper.make_node("GlobalAveragePool", ["x"], ["p"]),
            helper.make_node("Squeeze", ["p", "a"], ["y"]),
        ],
        {"a": ints(2, 3)},
    ),
}


QUICK = {
    *("Conv", "BatchNormalization", "MaxPool", "AveragePool, padding", "MatMul, channels last"),
    *("Clip", "PRelu", "ReduceMean over channels", "Pad", "Resize", "Concat", "Gelu by Erf"),
    *("a gate", "a constant computed from others", "Gemm", "Reshape by the shape", "Squeeze"),
}
"""One operator of each family."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.exhaustive] * (name not in QUICK))
        for name in [*OPERATORS, *HEADS]
    ],
)
def test_operators_agree_with_onnxruntime(name, tmp_path):
    nodes, constants = (OPERATORS | HEADS)[name]
    path = saved(tmp_path, nodes, constants, head=name in OPERATORS)
    rows = 1 if name == "Resize to a size" else 3  # the size tells the rows too
    batch = RNG.random((rows, *IMAGE.shape), dtype=np.float32)
    (expected,) = onnxruntime.InferenceSession(path).run(None, {"x": batch})
    with torch.inference_mode():
        found = from_onnx(path, IMAGE)(torch.from_numpy(batch)).numpy()
    assert np.allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "ends"),
    [("ConvNeXt", ""), pytest.param("gated", "gate", marks=pytest.mark.exhaustive)],
)
def test_exported_networks_run_on_patches(name, ends, tmp_path):
    path, image = str(tmp_path / "net.onnx"), RNG.random((3, 48, 64), dtype=np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network(name),
            (torch.from_numpy(image[None]),),
            path,
            dynamo=False,
            input_names=["x"],
            dynamic_axes={"x": {0: "n"}},
        )
    always = Incremental(from_onnx(path, image), cost_policy=CostPolicy.always())
    session = onnxruntime.InferenceSession(path)
    dense, quick = (
        Explainer(way, Constant(0.1), Bisection(16)).explain(image, target=1)
        for way in (session, always)
    )
    games = {game.region: game.values for game in dense.games}
    for game in quick.games:  # rounding may decide which games are played
        values = games.get(game.region, game.values)
        assert np.allclose(game.values, values, rtol=1e-5, atol=1e-5 * np.abs(values).max())
    assert quick.provenance.incremental > 0
    assert ("Patches run to the end" in always.report(image.shape)) == (not ends)


CAST = [  # truncated to whole numbers in between, which torch's form leaves out
    helper.make_node("Cast", ["x"], ["i"], to=TensorProto.INT64),
    helper.make_node("Cast", ["i"], ["y"], to=TensorProto.FLOAT),
]
REFUSED = {
    "an operator": (
        ([one("CumSum", "a")], {"a": np.array(1)}),
        (ArgumentError, r"has the operator CumSum.*use Batched\(session\)"),
    ),
    "an option": (
        ([one("Conv", "w", auto_pad="SAME_UPPER")], {"w": weights(2, 4, 3, 3)}),
        (ArgumentError, "Conv with auto_pad='SAME_UPPER'"),
    ),
    "other scores": ((CAST,), (ModelError, r"differs from onnxruntime by .* on the first input")),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_network_without_a_torch_form_is_refused(case, tmp_path):
    made, (error, told) = REFUSED[case]
    with pytest.raises(error, match=told):
        from_onnx(saved(tmp_path, *made), IMAGE)


def test_what_is_no_network_is_refused(tmp_path):
    path = tmp_path / "none.onnx"
    path.write_bytes(b"not a network")
    for file in (path, tmp_path / "missing.onnx"):
        with pytest.raises(ArgumentError, match=r"file is .*\.onnx', which is no ONNX file"):
            from_onnx(file, IMAGE)
    with pytest.raises(ArgumentError, match=r"image has shape \(3, 9, 9\), but .* takes \(4, "):
        from_onnx(saved(tmp_path, [one("Relu")]), np.zeros((3, 9, 9), np.float32))
