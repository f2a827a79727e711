"""`Batched`: any model's outputs become scores, batches fit into memory, and errors name inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
from oracle import any_marked, marked, same_explanation

from hshap import (
    Batched,
    Bisection,
    Constant,
    Dyadic,
    Explainer,
    Fixed,
    ModelError,
    References,
    Shifted,
    Superpixels,
)
from hshap.errors import ArgumentError, ModelFailedError, PairsFailedError
from hshap.protocols import SearchResult

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

IMAGE = marked((8, 8), [9, 30, 52])


class Brightest(torch.nn.Module):
    """Score as `any_marked` does, from a parameter, so that device and type are known."""

    def __init__(self, dtype=torch.float32, wrap=lambda scores: scores):
        super().__init__()
        self.limit = torch.nn.Parameter(torch.tensor(0.5, dtype=dtype))
        self.wrap, self.seen = wrap, []

    def forward(self, batch):
        self.seen.append((batch.dtype, batch.is_contiguous(), torch.is_inference_mode_enabled()))
        return self.wrap((batch[:, 0] > self.limit).flatten(1).any(1).to(batch.dtype))


def explain(model, image=IMAGE, **options):
    options = {"baseline": Constant(0.0), "partition": Dyadic(1), **options}
    return Explainer(model, **options).explain(image, target=0)


EXPECTED = explain(any_marked)


def counted(sizes, most=10**9, error=None):
    """A function that notes the sizes of its batches, and fails on large ones."""

    def model(batch):
        sizes.append(len(batch))
        if len(batch) > most:
            raise error or MemoryError
        return any_marked(batch)

    return model


# Models


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("channels_last", [False, True])
def test_a_module_gives_what_a_function_gives(dtype, channels_last):
    module = Brightest(dtype).eval()
    found = explain(Batched(module, channels_last=channels_last), np.repeat(IMAGE, 3, axis=0))
    assert same_explanation(found, EXPECTED)
    assert all(seen == (dtype, not channels_last, True) for seen in module.seen)


def test_autocast_reaches_the_module():
    seen, linear = [], torch.nn.Linear(64, 2)
    net = torch.nn.Sequential(torch.nn.Flatten(), linear).eval()
    linear.register_forward_hook(lambda layer, given, made: seen.append(made.dtype))
    explain(Batched(net, autocast="bfloat16"))
    assert set(seen) == {torch.bfloat16}


def test_modules_and_tensors_are_left_as_they_were():
    module = Brightest().eval()
    image = torch.from_numpy(IMAGE.copy()).requires_grad_()
    module.open = lambda: None  # a model with a method of this name is still a model
    with torch.inference_mode():
        assert same_explanation(explain(module), EXPECTED)
    assert same_explanation(explain(module, image), EXPECTED)
    assert np.array_equal(image.detach().numpy(), IMAGE)
    assert (image.grad, module.training, module.limit.requires_grad) == (None, False, True)
    # Warnings are errors here: torch must not warn of inputs, nor of outputs with gradients.
    assert explain(lambda batch: torch.from_numpy(batch).amax((1, 2, 3)).requires_grad_()).leaves


def test_outputs_in_double_precision_stay_so():
    class Offset(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.far = torch.nn.Parameter(torch.tensor(1e8, dtype=torch.float64))

        def forward(self, batch):
            return self.far + batch.flatten(1).sum(1)

    image = np.random.default_rng(0).random((1, 8, 8))
    exact = explain(lambda batch: 1e8 + batch.reshape(len(batch), -1).sum(1), image)
    found = explain(Offset().eval(), image)
    np.testing.assert_allclose(found.games[0].coefficients, exact.games[0].coefficients, atol=1e-6)
    assert Fixed(torch.zeros((1, 8, 8), dtype=torch.float64)).image.dtype == np.float64


def test_traced_graphs_are_checked_where_it_matters():
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2)).eval()
    traced = torch.fx.symbolic_trace(torch.nn.Sequential(net, torch.nn.Dropout()))
    with pytest.raises(ArgumentError, match="training mode"):
        explain(traced)
    assert same_explanation(explain(traced.eval()), explain(net))


@pytest.mark.exhaustive
def test_exported_graphs_are_models():
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2)).eval()
    batch = torch.export.Dim("batch")
    exported = torch.export.export(net, (torch.zeros(4, 1, 8, 8),), dynamic_shapes=({0: batch},))
    assert same_explanation(explain(exported.module()), explain(net))


def test_a_module_in_training_mode_is_refused():
    with pytest.raises(ArgumentError, match=r"training mode.*model\.eval\(\)"):
        Batched(Brightest())
    half_trained = torch.nn.Sequential(Brightest(), torch.nn.Dropout()).eval()
    half_trained[1].train()
    with pytest.raises(ArgumentError, match="'1' \\(Dropout\\)"):
        Batched(half_trained)
    switched = Brightest().eval()
    explainer = Explainer(switched, baseline=Constant(0.0), partition=Dyadic(1))
    switched.train()
    with pytest.raises(ArgumentError, match="training mode"):
        explainer.explain(IMAGE, target=0)
    with pytest.raises(ArgumentError, match="autocast='int8' is not known; pass one of float16"):
        Batched(Brightest().eval(), autocast="int8")


def test_an_accelerator_needs_three_methods():
    rows = []

    class Counting:
        def open_session(self):
            session = Batched(any_marked).open_session()

            class Session:
                put = staticmethod(session.put)
                capacity = staticmethod(session.capacity)

                def score(self, given):
                    rows.extend(given)
                    return session.score(given)

            return Session()

    assert same_explanation(explain(Counting()), EXPECTED)
    assert len(rows) == EXPECTED.evaluations


@pytest.mark.parametrize("partition", [Shifted(Bisection(2), (2, 3)), Superpixels(4), Dyadic(2)])
def test_torch_and_numpy_paint_the_same(partition):
    """NumPy has no bfloat16, so its inputs are painted by torch; numbers are exact in both."""

    class Shown(torch.nn.Module):
        def __init__(self, dtype):
            super().__init__()
            self.one = torch.nn.Parameter(torch.ones((), dtype=dtype))

        def forward(self, batch):
            return (batch.float() * (1 + torch.arange(batch[0].numel())).view(batch[0].shape)).sum(
                (1, 2, 3)
            )

    rng = np.random.default_rng(0)
    image, behind = rng.integers(0, 200, (2, 2, 11, 13)).astype(np.float32)
    options = {"baseline": Fixed(-behind), "partition": partition}
    found, expected = (
        explain(Shown(dtype).eval(), image, **options) for dtype in (torch.bfloat16, torch.float32)
    )
    assert same_explanation(found, expected)
    assert len(found.games) > 2


class Crossings(TorchDispatchMode):
    """Counts the operations whose tensors are on more than one device."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        tensors = [one for one in tree_leaves((args, made)) if isinstance(one, torch.Tensor)]
        self.count += len({one.device for one in tensors}) > 1
        return made


def every_game(root, draws):
    asked = [root]
    while asked:
        games = yield asked
        asked = [part for game in games for part in game.children if part.split()]
    return SearchResult(())


@pytest.mark.parametrize("partition", [Bisection(2), Superpixels(4), Shifted(Dyadic(2), 1)])
@pytest.mark.parametrize("draws", [1, 3])
def test_a_batch_crosses_to_a_device_once(partition, draws):
    """The meta device computes nothing, but tensors have to be moved to it as to any other."""

    class OnDevice(torch.nn.Module):
        calls = 0

        def __init__(self):
            super().__init__()
            self.one = torch.nn.Parameter(torch.ones((), device="meta"))

        def forward(self, batch):
            assert batch.device == self.one.device
            self.calls += 1
            return torch.full((len(batch), 1), 0.5)

    model, rng = OnDevice().eval(), np.random.default_rng(0)
    image, behind = rng.random((2, 12, 12)), rng.random((draws, 2, 12, 12))
    baseline = References(behind) if draws > 1 else Fixed(behind[0])
    with Crossings() as crossings:
        found = explain(model, image, baseline=baseline, partition=partition, search=every_game)
    assert len(found.games) > 2
    assert crossings.count == 1 + 1 + model.calls  # the image, the stand-ins, and each batch


# Outputs


class Named(NamedTuple):
    """As the outputs of torchvision."""

    logits: object
    aux: object


class Unnamed(NamedTuple):
    scores: object
    aux: object


@dataclass
class Held:
    """As the outputs of transformers."""

    logits: object
    loss: object = None


SCORES = {
    "object": Held,
    "dict": lambda scores: {"loss": None, "logits": scores},
    "named tuple": lambda scores: Named(scores, scores),
    "dict of one": lambda scores: {"probabilities": scores},
    "tuple of one": lambda scores: (scores,),
    "list of one": lambda scores: [scores],
    "one column": lambda scores: scores[:, None],
    "last layer a convolution": lambda scores: scores[:, None, None, None],
    "last layer a convolution of signals": lambda scores: scores[:, None, None],
    "one array for each input": lambda scores: [score[None] for score in scores],
}


@pytest.mark.parametrize("kind", SCORES)
def test_scores_are_found_in_the_outputs_of_other_libraries(kind):
    for model in (Brightest(wrap=SCORES[kind]).eval(), lambda b: SCORES[kind](any_marked(b))):
        assert same_explanation(explain(model), EXPECTED)


def test_other_classes_may_be_infinite():
    model = lambda b: np.stack([any_marked(b), np.full(len(b), -np.inf)], axis=1)
    assert same_explanation(explain(model), EXPECTED)


BAD_OUTPUTS = [
    (lambda s: (s, s), r"a tuple of 2; .* lambda batch: model\(batch\)\[0\]"),
    (lambda s: tuple(s[:, None]), r"a tuple of \d+; .*model\(batch\)\[0\]"),
    (lambda s: Unnamed(s, s), r"a Unnamed of 2; .*model\(batch\)\[0\]"),
    (lambda s: {"a": s, "b": s}, r"entries a, b; .*model\(batch\)\['a'\]"),
    (lambda s: {}, "a dict with the entries"),
    (lambda s: None, "returned None; it must return .* a return statement may be missing"),
    (lambda s: "cat", "returned a str; wrap it"),
    (lambda s: object(), "returned a object; wrap it"),
    (lambda s: s + 1j, "of type complex128; return an array of floats"),
    (lambda s: np.array(["cat"] * len(s)), "of type <U3; return an array of floats"),
    (lambda s: s.sum(), r"shape \(\) for"),
    (lambda s: 1.0, r"shape \(\) for"),
    (lambda s: np.ones((len(s), 2, 4, 4)), r"model\(batch\).max\(\(2, 3\)\)"),
    (lambda s: torch.ones(len(s), 2, 4, 4), r"model\(batch\).amax\(\(2, 3\)\)"),
    (lambda s: np.zeros((len(s), 2, 3)), r"\(\d+, 2, 3\) for \d+ inputs.*image 0 with \(\) kept"),
    (lambda s: np.zeros((len(s) + 1, 2)), r"shape \(\d+, 2\) for \d+ inputs"),
    (lambda s: np.zeros((len(s), 0)), r"shape \(\d+, 0\)"),
    (lambda s: np.where(s > 0, np.nan, 0.0), r"gave nan for target 0 on image 0"),
    (lambda s: np.where(s > 0, 0.0, np.inf), "nothing, the bare baseline kept"),
]


@pytest.mark.parametrize(("wrap", "said"), BAD_OUTPUTS)
def test_other_outputs_are_told_in_one_line(wrap, said):
    with pytest.raises(ModelError, match=said) as caught:
        explain(lambda batch: wrap(any_marked(batch)))
    assert "\n" not in str(caught.value)


def test_a_score_that_is_not_finite_names_image_and_coalition():
    def model(batch):  # only the second image has a 7 in it, in its first quadrant
        return np.where((batch == 7).any(axis=(1, 2, 3)), np.nan, any_marked(batch))

    second = IMAGE.copy()
    second[0, 0, 0] = 7
    explainer = Explainer(model, baseline=Constant(0.0), partition=Dyadic(4))
    told = r"image 1 with \(Box\(start=\(0, 0\), stop=\(4, 4\)\)"
    with pytest.raises(PairsFailedError, match=told) as caught:
        list(explainer.explain_many([(IMAGE, 0), (second, 0)]))
    assert isinstance(caught.value.errors[1], ModelError)


# Models that fail


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ((12, 32), r"12 channels of 32 pixels: for a grey picture, pass image\[None\]"),
        ((1, 6, 32, 32), r"1 channel of 6 x 32 x 32 pixels: .* pass one of them, image\[0\]"),
        ((2, 32, 32), r"2 channels of 32 x 32 pixels: pass an image of the size and the channels"),
    ],
)
def test_an_image_that_the_model_refuses_is_told_in_one_line(shape, said):
    module = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten()).eval()
    with pytest.raises(ModelFailedError, match=said) as caught:
        Explainer(module).explain(np.ones(shape, np.float32), 0)
    assert "\n" not in str(caught.value)


def test_the_models_own_error_is_the_cause():
    def model(batch):
        message = "mine"
        raise KeyError(message) from ZeroDivisionError("deeper")

    with pytest.raises(ModelFailedError, match=r"image 0 of the run: KeyError: 'mine'") as caught:
        explain(model)
    assert isinstance(caught.value.__cause__, KeyError)
    assert isinstance(caught.value.__cause__.__cause__, ZeroDivisionError)


def test_a_failing_baseline_is_not_taken_for_a_failing_model():
    def baseline(image):
        def fill(kept):
            if kept:
                message = "no such stand-in"
                raise KeyError(message)
            return np.zeros((1, *image.shape), image.dtype)

        return fill

    with pytest.raises(KeyError, match="no such stand-in"):
        explain(any_marked, baseline=baseline)


# Memory


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 7 bytes"),
    ],
)
def test_out_of_memory_halves_the_batch_and_goes_on(error):
    sizes = []
    found = explain(Batched(counted(sizes, 5, error), batch_size=40))
    assert same_explanation(found, EXPECTED)
    # 40 -> 20 -> 10 -> 5, and never a large one again.
    assert [size for size in sizes if size > 5] == [16, 8]
    assert max(sizes[2:]) <= 5


def test_out_of_memory_for_one_input_is_an_error():
    told = r"batch of 1 inputs of shape \(1, 8, 8\).*MemoryError"
    with pytest.raises(ModelFailedError, match=told) as caught:
        explain(counted([], 0))
    assert isinstance(caught.value.__cause__, MemoryError)


def test_memory_that_one_shape_lacks_does_not_slow_the_others():
    sizes = []

    def model(batch):
        sizes.append((batch.shape[-1], len(batch)))
        if batch.shape[-1] == 16 and len(batch) > 1:
            raise MemoryError
        return any_marked(batch)

    explainer = Explainer(model, baseline=Constant(0.0), partition=Dyadic(1))
    pairs = [(marked((8, side), [3]), 0) for side in (16, 8, 8, 8, 16, 8, 8)]
    assert len(list(explainer.explain_many(pairs))) == 7
    failed = sizes.index((16, 1))
    assert max(count for side, count in sizes[failed:] if side == 8) > 8


def test_batches_are_limited_by_their_bytes_and_by_the_games():
    sizes, image = [], np.zeros((2, 2048, 1024), np.float32)
    image[0, 5, 5] = 1
    explain(counted(sizes), image, partition=Dyadic(256))
    assert max(sizes) == 128 * 2**20 // image.nbytes
    sizes.clear()
    small = np.ones((1, 512, 512), np.float32)
    explain(Batched(counted(sizes), batch_size=10**9), small, partition=Dyadic(128))
    assert max(sizes) == 4 * 14


# ONNX


@pytest.fixture
def session(tmp_path):
    """Return a function that makes a session which scores the largest pixel of each image."""
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")

    def make(batch="n", kind="FLOAT", side=8, outputs=1):
        helper, kind = onnx.helper, getattr(onnx.TensorProto, kind)
        nodes = [helper.make_node("ReduceMax", ["image"], ["high"], axes=[1, 2, 3], keepdims=0)]
        nodes += [helper.make_node("Identity", ["high"], [f"score{i}"]) for i in range(outputs)]
        takes = [helper.make_tensor_value_info("image", kind, [batch, 1, side, side])]
        gives = [helper.make_tensor_value_info(f"score{i}", kind, [batch]) for i in range(outputs)]
        graph = helper.make_graph(nodes, "brightest", takes, gives)
        opsets = [helper.make_opsetid("", 13)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        return runtime.InferenceSession(model.SerializeToString())

    return make


@pytest.mark.parametrize("options", [{"batch": 1}, {"batch": 5}, {"kind": "DOUBLE"}], ids=str)
def test_an_onnx_session_gives_what_a_function_gives(session, options):
    assert same_explanation(explain(session(**options)), EXPECTED)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kind": "INT32"}, r"takes tensor\(int32\); pass one that takes"),
        ({"side": 9}, r"image has shape \(1, 8, 8\).*\(1, 9, 9\)"),
        ({"outputs": 2}, "1 inputs and 2 outputs; pass a callable"),
    ],
)
def test_an_onnx_session_that_does_not_fit_is_told(session, options, said):
    with pytest.raises(ArgumentError, match=said):
        explain(session(**options))
