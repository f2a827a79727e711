"""The nodes of an ONNX graph, converted one after another. Needs torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import fx, nn
from torch.fx.node import map_arg

from hshap.evaluators.onnx_import.calls import Call, UnsupportedError
from hshap.evaluators.onnx_import.operators import CONVERTERS

if TYPE_CHECKING:
    from hshap._util.types import Array, Shape, Untyped


def module_of(onnx: Untyped, model: Untyped, shape: Shape) -> nn.Module:
    """Return a model of one input and one output as a module, for images of a shape."""
    return _Conversion(onnx, model, shape).done()


class _Conversion:
    def __init__(self, onnx: Untyped, model: Untyped, shape: Shape) -> None:
        from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: PLC0415, slow to import

        self._onnx, self._model, self._root = onnx, model, nn.Module()
        self._graph = fx.Graph()
        self._constants: dict[str, Array] = {
            one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer
        }
        self._nodes: dict[str, fx.Node] = {}
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._seen: dict[fx.Node, Untyped] = {}  # tensors without numbers, for their shapes
        self._add_input(shape)

    def _add_input(self, shape: Shape) -> None:
        graph = self._model.graph
        inputs = [one for one in graph.input if one.name not in self._constants]
        if len(inputs) != 1 or len(graph.output) != 1:
            message = f"{len(inputs)} inputs and {len(graph.output)} outputs"
            raise UnsupportedError(message)
        kind = self._onnx.helper.tensor_dtype_to_np_dtype(inputs[0].type.tensor_type.elem_type)
        node = self._graph.placeholder("x")
        example = torch.from_numpy(np.empty((1, *shape), kind))
        self._nodes[inputs[0].name], self._seen[node] = node, self._mode.from_tensor(example)

    def done(self) -> nn.Module:
        for node in self._model.graph.node:
            self._add(node)
        self._graph.output(self._nodes[self._model.graph.output[0].name])
        module = fx.GraphModule(self._root, self._graph).eval()
        return module.requires_grad_(requires_grad=False)

    def _add(self, node: Untyped) -> None:
        given = [self._value(name) for name in node.input]
        if node.op_type == "Shape" and isinstance(given[0], fx.Node):
            # The batch is told as 0: a reshape then takes it from its input.
            options = self._options(node)
            sides = [0, *(int(n) for n in self._seen[given[0]].shape[1:])]
            part = sides[options.get("start", 0) : options.get("end", len(sides))]
            self._constants[node.output[0]] = np.array(part, np.int64)
        elif not any(isinstance(one, fx.Node) for one in given):
            self._fold(node)
        elif node.op_type == "Cast":
            self._nodes[node.output[0]] = given[0]  # between floats; the comparison would tell
        else:
            self._convert(node, given)

    def _value(self, name: str) -> Untyped:
        return self._nodes.get(name, self._constants.get(name)) if name else None

    def _options(self, node: Untyped) -> dict[str, Untyped]:
        read = self._onnx.helper.get_attribute_value
        found = {one.name: read(one) for one in node.attribute}
        return {
            name: value.decode() if isinstance(value, bytes) else value
            for name, value in found.items()
        }

    def _fold(self, node: Untyped) -> None:
        """Compute a node of constants with ONNX's own reference."""
        from onnx.reference import ReferenceEvaluator  # noqa: PLC0415, onnx is optional

        helper = self._onnx.helper
        feeds = {name: self._constants[name] for name in node.input if name}
        inputs = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
            )
            for name, value in feeds.items()
        ]
        outputs = [helper.make_empty_tensor_value_info(name) for name in node.output]
        graph = helper.make_graph([node], "constant", inputs, outputs)
        model = helper.make_model(graph, opset_imports=self._model.opset_import)
        try:
            made = ReferenceEvaluator(model).run(None, feeds)
        except Exception as error:
            message = f"{node.op_type} of constants that cannot be computed ({error})"
            raise UnsupportedError(message) from error
        self._constants.update(
            (name, np.asarray(value)) for name, value in zip(node.output, made, strict=True)
        )

    def _convert(self, node: Untyped, given: list[Untyped]) -> None:
        convert = CONVERTERS.get(node.op_type) if node.domain in {"", "ai.onnx"} else None
        if convert is None:
            message = f"the operator {node.op_type}"
            raise UnsupportedError(message)
        call = Call(
            node.op_type,
            given,
            self._options(node),
            rank=lambda one: self._shape_of(one).ndim,
            add_module=self._add_module,
            graph=self._graph,
            constant=self._constant_node,
        )
        made = convert(call)
        self._shape_of(made)
        self._nodes[node.output[0]] = made

    def _add_module(self, layer: nn.Module, given: fx.Node) -> fx.Node:
        name = f"layer_{sum(1 for _ in self._root.children())}"
        self._root.add_module(name, layer.eval())
        return self._graph.call_module(name, (given,))

    def _constant_node(self, value: Array) -> fx.Node:
        name = f"constant_{sum(1 for _ in self._root.buffers(recurse=False))}"
        self._root.register_buffer(name, torch.from_numpy(np.array(value)))
        return self._graph.get_attr(name)

    def _shape_of(self, node: fx.Node) -> torch.Tensor:
        """Return a tensor without numbers that has the shape of a node's result."""
        for one in self._graph.nodes:
            if one in self._seen or one.op == "output":
                continue
            args, options = map_arg((one.args, one.kwargs), lambda other: self._seen[other])
            with self._mode, torch.no_grad():
                self._seen[one] = self._run(one, args, options)
        return self._seen[node]

    def _run(self, node: fx.Node, args: Untyped, options: Untyped) -> Untyped:
        target: Untyped = node.target
        if node.op == "get_attr":
            return getattr(self._root, target)
        if node.op == "call_module":
            return self._root.get_submodule(target)(*args, **options)
        if node.op == "call_method":
            return getattr(args[0], target)(*args[1:], **options)
        return target(*args, **options)
