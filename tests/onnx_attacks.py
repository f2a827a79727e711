"""ONNX models that do harm: they crash onnxruntime, run forever, take all memory or read files."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx
from onnx import helper, numpy_helper

FLOAT = onnx.TensorProto.FLOAT
SIDE = 8
OPSETS = [("", 17), ("local", 1), ("ai.onnx.contrib", 1)]
DATA = "weights.bin"
"""The file of external data next to a model; the folder above it has one of the same name."""
MEMORY_ADDRESS = "*/_ORT_MEM_ADDR_/*"
"""To onnxruntime, external data of this name is at an address in memory."""

node = helper.make_node


def constant(name, value):
    return numpy_helper.from_array(np.asarray(value), name)


def model(nodes, constants=(), functions=()):
    """Return a model from `x` to `y`."""
    images = helper.make_tensor_value_info("x", FLOAT, ["n", 3, SIDE, SIDE])
    scores = helper.make_tensor_value_info("y", FLOAT, None)
    graph = helper.make_graph(list(nodes), "graph", [images], [scores], list(constants))
    opsets = [helper.make_opsetid(*one) for one in OPSETS]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9, functions=list(functions))


def network():
    """Return a small network of the usual layers."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((4, 3, 3, 3)).astype(np.float32)
    head = rng.standard_normal((4, 2)).astype(np.float32)
    two = {"kernel_shape": [2, 2], "strides": [2, 2]}
    window = {"kernel_shape": [3, 3], "pads": [1] * 4, "strides": [1, 1], "dilations": [1, 1]}
    nodes = [
        node("Conv", ["x", "weights"], ["a"], group=1, **window),
        node("Relu", ["a"], ["b"]),
        node("MaxPool", ["b"], ["c"], **two),
        node("AveragePool", ["c"], ["d"], **two),
        node("BatchNormalization", ["d", "ones", "ones", "ones", "ones"], ["e"]),
        node("GlobalAveragePool", ["e"], ["f"]),
        node("Flatten", ["f"], ["g"], axis=1),
        node("Gemm", ["g", "head"], ["h"], alpha=1.0),
        node("Reshape", ["h", "shape"], ["i"]),
        node("Softmax", ["i"], ["y"], axis=1),
    ]
    ones = constant("ones", np.ones(4, np.float32))
    constants = [constant("weights", weights), constant("head", head), ones]
    return model(nodes, [*constants, constant("shape", [-1, 2])])


def external(location, where="initializer"):
    """Return a model with a weight of 4 x 2 numbers in another file, at any place in the model."""
    tensor = onnx.TensorProto(name="head", data_type=FLOAT, dims=[4, 2])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    tensor.external_data.add(key="offset", value="0")
    tensor.external_data.add(key="length", value="32")
    made = network()
    if where == "initializer":
        made.graph.initializer[1].CopyFrom(tensor)
        return made
    del made.graph.initializer[1]
    if where == "function":
        source = [node("Constant", [], ["out"], value=tensor)]
        opsets = [helper.make_opsetid("", 17)]
        made.functions.append(helper.make_function("local", "Weights", [], ["out"], source, opsets))
        made.graph.node.insert(0, node("Weights", [], ["head"], domain="local"))
    elif where == "subgraph":
        out = helper.make_tensor_value_info("out", FLOAT, [4, 2])
        inner = helper.make_graph([node("Constant", [], ["out"], value=tensor)], "g", [], [out])
        made.graph.initializer.append(constant("yes", np.array(1, bool)))
        branches = {"then_branch": inner, "else_branch": inner}
        made.graph.node.insert(0, node("If", ["yes"], ["head"], **branches))
    elif where == "attribute":
        made.graph.node.insert(0, node("Constant", [], ["head"], value=tensor))
    else:
        tensor.dims[:] = [8]
        sparse = onnx.SparseTensorProto(values=tensor, dims=[4, 2])
        sparse.indices.CopyFrom(constant("places", np.arange(8)))
        made.graph.sparse_initializer.append(sparse)
    return made


PLACES = ("initializer", "attribute", "subgraph", "function", "sparse")


@cache
def attacks():
    """Return models that onnxruntime should not be given in the process of a user."""
    zero = [node("Cast", ["d"], ["e"], to=FLOAT), node("Add", ["x", "e"], ["y"])]
    largest = [node("ReduceMax", ["d"], ["e"], keepdims=0), node("Add", ["x", "e"], ["y"])]
    small, one = constant("a", np.int32(-(2**31))), constant("b", np.int32(-1))
    kernel = constant("w", np.ones((3, 1, 1, 1), np.float32))
    made = {
        "smallest integer / -1": model([node("Div", ["a", "b"], ["d"]), *zero], [small, one]),
        "no groups": model([node("ConvTranspose", ["x", "w"], ["y"], group=0)], [kernel]),
        "endless loop": _loop(),
        "functions that double": _doubling(30),
        "long chain of functions": _chain(5_000),
        "deep subgraphs": _nested(25),
        "much memory": model(
            [node("ConstantOfShape", ["s"], ["d"]), *largest], [constant("s", [2**36])]
        ),
        "memory that is filled": model(
            [node("Expand", ["o", "s"], ["d"]), *largest],
            [constant("o", np.float32(1)), constant("s", [2**32])],
        ),
        "large output": model([node("Tile", ["x", "s"], ["y"])], [constant("s", [1, 2**20, 1, 1])]),
        "operation of a library": model([node("PyOp", ["x"], ["y"], domain="ai.onnx.contrib")]),
    }
    return {name: one.SerializeToString() for name, one in made.items()}


def _loop():
    value = helper.make_tensor_value_info
    nodes = [node("Identity", ["go"], ["again"]), node("Neg", ["v"], ["w"])]
    kinds = onnx.TensorProto
    inputs = [value("i", kinds.INT64, []), value("go", kinds.BOOL, []), value("v", FLOAT, None)]
    outputs = [value("again", kinds.BOOL, []), value("w", FLOAT, None)]
    body = helper.make_graph(nodes, "body", inputs, outputs)
    constants = [constant("most", 2**62), constant("yes", np.array(1, bool))]
    return model([node("Loop", ["most", "yes", "x"], ["y"], body=body)], constants)


def _function(name, *calls):
    names = ["in", *(f"t{number}" for number in range(len(calls) - 1)), "out"]
    nodes = [
        node(call, [names[i]], [names[i + 1]], domain="" if call == "Neg" else "local")
        for i, call in enumerate(calls)
    ]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    return helper.make_function("local", name, ["in"], ["out"], nodes, opsets)


def _doubling(levels):
    functions = [_function("F0", "Neg", "Neg")]
    functions += [_function(f"F{i}", f"F{i - 1}", f"F{i - 1}") for i in range(1, levels)]
    return model([node(f"F{levels - 1}", ["x"], ["y"], domain="local")], (), functions)


def _chain(length):
    functions = [_function("F0", "Neg")]
    functions += [_function(f"F{i}", f"F{i - 1}") for i in range(1, length)]
    return model([node(f"F{length - 1}", ["x"], ["y"], domain="local")], (), functions)


def _nested(levels):
    out = helper.make_tensor_value_info("out", FLOAT, None)
    plain = helper.make_graph([node("Neg", ["x"], ["out"])], "g", [], [out])
    inner = plain
    for _ in range(levels):
        branches = {"then_branch": inner, "else_branch": plain}
        inner = helper.make_graph([node("If", ["yes"], ["out"], **branches)], "g", [], [out])
    nodes = [*inner.node, node("Flatten", ["out"], ["y"])]
    return model(nodes, [constant("yes", np.array(1, bool))])
