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
    DepthFirst,
    Dyadic,
    Explainer,
    Fixed,
    ModelError,
    ModelFailedError,
    PairsFailedError,
)
from hshap.errors import ArgumentError

torch = pytest.importorskip("torch")

IMAGE = marked((8, 8), [9, 30, 52])


class Brightest(torch.nn.Module):
    """Score as `any_marked` does, from a parameter, so that device and type are known."""

    def __init__(self, dtype=torch.float32, *, in_place=False, shape=None):
        super().__init__()
        self.limit = torch.nn.Parameter(torch.tensor(0.5, dtype=dtype))
        self.in_place, self.shape, self.seen = in_place, shape, []

    def forward(self, batch):
        self.seen.append((batch.dtype, batch.is_contiguous(), torch.is_inference_mode_enabled()))
        marked = (batch[:, 0] > self.limit).flatten(1).any(1).to(batch.dtype)
        if self.in_place:
            batch.mul_(0)
        return marked if self.shape is None else marked.reshape(self.shape(len(marked)))


def explain(model, image=IMAGE, **options):
    explainer = Explainer(model, baseline=Constant(0.0), partition=Dyadic(1), **options)
    return explainer.explain(image, target=0)


EXPECTED = explain(any_marked)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("channels_last", [False, True])
def test_a_module_gives_what_a_function_gives(dtype, channels_last):
    module = Brightest(dtype).eval()
    found = explain(Batched(module, channels_last=channels_last))
    assert same_explanation(found, EXPECTED)
    assert all(seen[0] == dtype and seen[2] for seen in module.seen)


def test_channels_last_reaches_the_module():
    module = Brightest().eval()
    image = np.repeat(IMAGE, 3, axis=0)
    explain(Batched(module, channels_last=True), image)
    assert not any(contiguous for _, contiguous, _ in module.seen)


def test_autocast_reaches_the_module():
    seen = []

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(64, 2)

        def forward(self, batch):
            scores = self.linear(batch.flatten(1))
            seen.append(scores.dtype)
            return scores

    explain(Batched(Net().eval(), autocast="bfloat16"))
    assert set(seen) == {torch.bfloat16}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_module_that_writes_to_its_input_does_no_harm(dtype):
    # The baseline marks one pixel itself: were it wiped out for good, scores would change.
    baseline = marked((8, 8), [63])
    image = np.zeros_like(IMAGE)
    search = DepthFirst(0.0)

    def found(module):
        explainer = Explainer(module, baseline=Fixed(baseline), partition=Dyadic(1), search=search)
        return explainer.explain(image, target=lambda outputs: -outputs[:, 0])

    spoiled, sound = (found(Brightest(dtype, in_place=wipe).eval()) for wipe in (True, False))
    assert same_explanation(spoiled, sound)
    assert len({value for game in sound.games for value in game.values}) > 1


def test_a_function_may_write_to_its_input():
    def careless(batch):
        scores = any_marked(batch)
        batch *= 0
        return scores

    assert same_explanation(explain(careless), explain(any_marked))


def test_torch_does_not_warn_of_the_inputs_of_a_function():
    # Warnings are errors here.
    explain(lambda batch: torch.from_numpy(batch).amax((1, 2, 3)))


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
    "one array for each input": lambda scores: [score[None] for score in scores],
}


@pytest.mark.parametrize("kind", SCORES)
@pytest.mark.parametrize("of", ["function", "module"])
def test_scores_are_found_in_the_outputs_of_other_libraries(kind, of):
    class Wrapped(Brightest):
        def forward(self, batch):
            return SCORES[kind](super().forward(batch))

    model = Wrapped().eval() if of == "module" else lambda batch: SCORES[kind](any_marked(batch))
    assert same_explanation(explain(model), EXPECTED)


@pytest.mark.parametrize(
    ("wrap", "said"),
    [
        (lambda scores: (scores, scores), r"a tuple of 2; .* lambda batch: model\(batch\)\[0\]"),
        (lambda scores: Unnamed(scores, scores), r"a Unnamed of 2; .*model\(batch\)\[0\]"),
        (lambda scores: {"a": scores, "b": scores}, r"entries a, b; .*model\(batch\)\['a'\]"),
        (lambda scores: {}, "a dict with the entries"),
        (lambda scores: None, "returned None; .* a return statement may be missing"),
        (lambda scores: "cat", "returned a str; wrap it"),
        (lambda scores: object(), "returned a object; wrap it"),
        (lambda scores: scores + 1j, "of type complex128; return an array of floats"),
        (lambda scores: scores.sum(), r"shape \(\) for"),
        (lambda scores: np.ones((len(scores), 2, 4, 4)), r"model\(batch\).max\(\(2, 3\)\)"),
        (lambda scores: torch.ones(len(scores), 2, 4, 4), r"model\(batch\).amax\(\(2, 3\)\)"),
    ],
)
def test_other_outputs_are_told_in_one_line_with_the_fix(wrap, said):
    with pytest.raises(ModelError, match=said) as caught:
        explain(lambda batch: wrap(any_marked(batch)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ((12, 32), r"12 channels of 32 pixels: for a grey picture, pass image\[None\]"),
        ((1, 6, 32, 32), r"1 channel of 6 x 32 x 32 pixels: .* pass one of them, image\[0\]"),
        ((2, 32, 32), r"2 channels of 32 x 32 pixels: pass an image of the size and the channels"),
    ],
)
def test_an_image_of_another_shape_than_the_model_takes_is_told_in_one_line(shape, said):
    module = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten()).eval()
    with pytest.raises(ModelFailedError, match=said) as caught:
        Explainer(module).explain(np.ones(shape, np.float32), 0)
    assert "\n" not in str(caught.value)


def test_modules_and_tensors_are_left_as_they_were():
    module = Brightest().eval()
    image = torch.from_numpy(IMAGE.copy())
    before = image.clone()
    assert same_explanation(explain(module, image), EXPECTED)
    assert torch.equal(image, before)
    assert image.shape == before.shape
    assert not module.training
    assert module.limit.requires_grad
    assert module.limit.grad is None


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


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writ")
def test_a_function_that_writes_through_torch_does_no_harm(rng):
    def spoil(batch):
        tensor = torch.from_numpy(batch)
        tensor -= 0.5
        return tensor.flatten(1).sum(1)

    class Spoil(torch.nn.Module):
        def forward(self, batch):
            scores = batch.flatten(1).sum(1) - 0.5 * batch[0].numel()
            batch.data.mul_(0.3)
            return scores

    image = rng.random((1, 8, 8)).astype(np.float32)
    settings = {"baseline": Constant(0.5), "partition": Dyadic(1)}
    sound = Explainer(lambda b: spoil(b.copy()), **settings).explain(image, target=0)
    for model in (spoil, Spoil().eval()):
        found = Explainer(model, **settings).explain(image, target=0)
        assert found.leaves == sound.leaves
        assert found.evaluations == sound.evaluations


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_writes_are_noticed_under_inference_mode_too(dtype, rng):
    class Spoil(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one = torch.nn.Parameter(torch.ones((), dtype=dtype))

        def forward(self, batch):
            scores = batch.float().flatten(1).sum(1)
            batch[:, 1].sub_(self.one)
            return scores

    image = rng.random((3, 32, 32)).astype(np.float32)
    settings = {"baseline": Constant((0.0, 0.5, 0.0)), "partition": Dyadic(8)}
    with torch.inference_mode():
        found = Explainer(Spoil().eval(), **settings).explain(image, target=0)
    assert all(np.isclose(game.values[0], 0.5 * 32 * 32) for game in found.games)


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writ")
@pytest.mark.parametrize("channel", [0, 1, 2])
def test_writes_to_any_channel_through_torch_are_noticed(channel, rng):
    def spoil(batch):
        tensor = torch.from_numpy(batch)
        scores = tensor.flatten(1).sum(1).clone()
        tensor[:, channel] -= 0.45
        return scores

    image = rng.random((3, 32, 32)).astype(np.float32)
    found = Explainer(spoil, baseline=Constant(0.5), partition=Dyadic(8)).explain(image, target=0)
    assert all(np.isclose(game.values[0], 0.5 * 3 * 32 * 32) for game in found.games)
    assert np.isclose(found.games[-1].coefficients.sum(), found.games[-1].total, atol=1e-3)


def test_inference_mode_around_a_call_is_no_problem():
    module = Brightest().eval()
    with torch.inference_mode():
        assert same_explanation(explain(module), EXPECTED)


def test_traced_and_exported_graphs_are_checked_where_it_matters():
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2)).eval()
    expected = explain(net)
    batch = torch.export.Dim("batch")
    exported = torch.export.export(net, (torch.zeros(4, 1, 8, 8),), dynamic_shapes=({0: batch},))
    assert same_explanation(explain(exported.module()), expected)
    traced = torch.fx.symbolic_trace(torch.nn.Sequential(net, torch.nn.Dropout()))
    with pytest.raises(ArgumentError, match="training mode"):
        explain(traced)
    assert same_explanation(explain(traced.eval()), expected)


def test_a_model_with_a_method_named_open_is_a_model():
    module = Brightest().eval()
    module.open = lambda: None
    assert same_explanation(explain(module), EXPECTED)


def test_a_batch_size_beyond_all_memory_is_only_a_limit():
    sizes = []

    def model(batch):
        sizes.append(len(batch))
        return any_marked(batch)

    image = np.ones((1, 512, 512), np.float32)
    explainer = Explainer(
        Batched(model, batch_size=10**9), baseline=Constant(0.0), partition=Dyadic(128)
    )
    explainer.explain(image, target=0)
    assert max(sizes) == 4 * 14


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


def test_images_and_outputs_may_require_gradients():
    image = torch.from_numpy(IMAGE.copy()).requires_grad_()
    model = lambda batch: torch.from_numpy(any_marked(batch)).requires_grad_()
    assert same_explanation(explain(model, image), EXPECTED)
    assert image.grad is None


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


@pytest.mark.parametrize("shape", [lambda n: (n,), lambda n: (n, 1)])
def test_one_or_two_output_axes_are_accepted(shape):
    assert same_explanation(explain(Brightest(shape=shape).eval()), EXPECTED)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (
            lambda b: np.zeros((len(b), 2, 3)),
            r"shape \(\d+, 2, 3\) for \d+ inputs.*the first: image 0 with \(\) kept",
        ),
        (lambda b: np.zeros((len(b) + 1, 2)), r"shape \(\d+, 2\) for \d+ inputs"),
        (lambda b: np.zeros((len(b), 0)), r"shape \(\d+, 0\)"),
        (lambda b: 1.0, r"shape \(\) for"),
        (lambda b: (np.zeros(len(b)), None), "returned a tuple of 2; wrap it"),
        (lambda b: {"a": np.zeros(len(b)), "b": None}, "a dict with the entries a, b; wrap it"),
        (lambda b: np.array(["cat"] * len(b)), "of type <U3; return an array of floats"),
        (lambda b: None, "returned None; it must return"),
        (lambda b: np.where(any_marked(b) > 0, np.nan, 0.0), r"gave nan for target 0 on image 0"),
        (lambda b: np.where(any_marked(b) > 0, 0.0, np.inf), "nothing, the bare baseline kept"),
    ],
)
def test_an_output_that_cannot_be_used_is_told(output, message):
    with pytest.raises(ModelError, match=message):
        explain(output)


def test_a_score_that_is_not_finite_names_image_and_coalition():
    def model(batch):
        scores = any_marked(batch)
        # Only the second image has a 7 in it, and only its first quadrant shows it.
        return np.where((batch == 7).any(axis=(1, 2, 3)), np.nan, scores)

    second = IMAGE.copy()
    second[0, 0, 0] = 7
    explainer = Explainer(model, baseline=Constant(0.0), partition=Dyadic(4))
    told = r"image 1 with \(Box\(start=\(0, 0\), stop=\(4, 4\)\)"
    with pytest.raises(PairsFailedError, match=told) as caught:
        list(explainer.explain_many([(IMAGE, 0), (second, 0)]))
    assert isinstance(caught.value.errors[1], ModelError)


def test_other_classes_may_be_infinite():
    model = lambda b: np.stack([any_marked(b), np.full(len(b), -np.inf)], axis=1)
    assert same_explanation(explain(model), EXPECTED)


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

    def model(batch):
        sizes.append(len(batch))
        if len(batch) > 5:
            raise error
        return any_marked(batch)

    assert same_explanation(explain(Batched(model, batch_size=40)), EXPECTED)
    # 40 -> 20 -> 10 -> 5, and never a large one again.
    assert [size for size in sizes if size > 5] == [16, 8]
    assert max(sizes[2:]) <= 5


def test_out_of_memory_for_one_input_is_an_error_that_says_so():
    def model(batch):
        raise MemoryError

    told = r"batch of 1 inputs of shape \(1, 8, 8\).*MemoryError"
    with pytest.raises(ModelFailedError, match=told) as caught:
        explain(model)
    assert isinstance(caught.value.__cause__, MemoryError)


def test_the_models_own_error_is_the_cause_of_one_that_names_the_inputs():
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

    explainer = Explainer(any_marked, baseline=baseline, partition=Dyadic(1))
    with pytest.raises(KeyError, match="no such stand-in"):
        explainer.explain(IMAGE, target=0)


def test_large_images_make_small_batches():
    sizes = []

    def model(batch):
        sizes.append(len(batch))
        return any_marked(batch)

    image = np.zeros((1, 4096, 1024), np.float32)
    image[0, 5, 5] = 1
    explainer = Explainer(model, baseline=Constant(0.0), partition=Dyadic(512))
    explainer.explain(image, target=0)
    assert max(sizes) == 128 * 2**20 // image.nbytes


def test_an_unknown_autocast_type_is_told():
    with pytest.raises(ArgumentError, match="autocast='int8' is not known; pass one of float16"):
        Batched(Brightest().eval(), autocast="int8")


class TestOnnx:
    @pytest.fixture
    def export(self, tmp_path):
        pytest.importorskip("onnx")
        runtime = pytest.importorskip("onnxruntime")
        from onnx import TensorProto, helper, save

        def make(batch="n", kind=TensorProto.FLOAT, side=8, outputs=1):
            """Score the largest pixel of each image."""
            nodes = [helper.make_node("ReduceMax", ["image"], ["high"], axes=[1, 2, 3], keepdims=0)]
            nodes += [helper.make_node("Identity", ["high"], [f"score{i}"]) for i in range(outputs)]
            graph = helper.make_graph(
                nodes,
                "brightest",
                [helper.make_tensor_value_info("image", kind, [batch, 1, side, side])],
                [helper.make_tensor_value_info(f"score{i}", kind, [batch]) for i in range(outputs)],
            )
            model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
            model.ir_version = 8
            path = tmp_path / "model.onnx"
            save(model, path)
            return runtime.InferenceSession(path, providers=["CPUExecutionProvider"])

        return make

    @pytest.mark.parametrize("batch", ["n", 1, 5])
    def test_a_session_gives_what_a_function_gives(self, export, batch):
        assert same_explanation(explain(export(batch)), EXPECTED)

    def test_a_session_of_doubles_is_given_doubles(self, export):
        from onnx import TensorProto

        assert same_explanation(explain(export(kind=TensorProto.DOUBLE)), EXPECTED)

    def test_a_session_that_takes_no_floats_is_told(self, export):
        from onnx import TensorProto

        with pytest.raises(ArgumentError, match=r"takes tensor\(int32\); pass one that takes"):
            explain(export(kind=TensorProto.INT32))

    def test_another_input_size_is_told(self, export):
        with pytest.raises(ArgumentError, match=r"image has shape \(1, 8, 8\).*\(1, 9, 9\)"):
            explain(export(side=9))

    def test_several_outputs_are_told(self, export):
        with pytest.raises(ArgumentError, match="1 inputs and 2 outputs; pass a callable"):
            explain(export(outputs=2))


def test_an_accelerator_needs_two_methods():
    inner = Batched(any_marked)

    class Counting:
        def __init__(self):
            self.rows = 0

        def open_session(self):
            counting, session = self, inner.open_session()

            class Session:
                put = staticmethod(session.put)
                capacity = staticmethod(session.capacity)

                def score(self, rows):
                    counting.rows += len(rows)
                    return session.score(rows)

            return Session()

    counting = Counting()
    assert same_explanation(explain(counting), EXPECTED)
    assert counting.rows == EXPECTED.evaluations


def test_large_regions_paint_the_same_on_torch_tensors(rng):
    # Painted as torch tensors, since NumPy has no bfloat16; boxes, wrapped boxes and free forms.
    from hshap import Pixels, Shifted
    from hshap.evaluators.canvas import Canvas, Row, StandIns

    image = (rng.random((2, 6, 7)) * 256).astype(np.float32)
    baseline = -np.ones((2, 6, 7), np.float32)
    seen = []

    class Shown(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one = torch.nn.Parameter(torch.ones((), dtype=torch.bfloat16))

        def forward(self, batch):
            seen.append(batch[0].clone())
            return batch.flatten(1).amax(1)

    session = Batched(Shown().eval()).open_session()
    root = Shifted(Bisection(1), (2, 3))(image)
    kept = (root.split()[1].split()[0], Pixels(np.array([0, 8, 41]), (6, 7)))
    stand_ins = StandIns(Fixed(baseline)(image), image.shape, session.put)
    canvas = Canvas(image, stand_ins, root, put=session.put, position=0)
    for shown in ((), kept, (kept[1],), (root,), kept):
        session.score([Row(canvas, shown, 0)])
        expected = baseline.copy()
        for region in shown:
            expected[(slice(None), *region.index)] = image[(slice(None), *region.index)]
        assert torch.equal(seen[-1], torch.from_numpy(expected).bfloat16())


class Writes(torch.nn.Module):
    """Writes to some pixels of its input through `x.data`, which torch does not count."""

    def __init__(self, pixels, *, only_bright=False):
        super().__init__()
        self.pixels, self.only_bright = pixels, only_bright

    def forward(self, batch):
        scores = batch.flatten(1).sum(1).clone()
        if not self.only_bright:
            batch.data[self.pixels] = 9.0
        else:
            batch.data[batch > 0.9] = 9.0
        return scores


WRITES = {
    "a corner": np.s_[:, :, 0, 0],
    "one pixel": np.s_[:, 1, 5, 7],
    "a row": np.s_[:, :, 3],
    "one input": np.s_[1:2, :, 2:4, 2:4],
    "all": np.s_[:],
}


@pytest.mark.parametrize("where", sorted(WRITES))
@pytest.mark.parametrize("side", [24, 320], ids=["small", "large"])
def test_writes_that_torch_does_not_count_do_no_harm(where, side, rng):
    image = rng.random((3, side, side)).astype(np.float32)
    sound = lambda batch: torch.from_numpy(batch.copy()).flatten(1).sum(1)
    found, expected = (
        Explainer(model, baseline=Constant(0.5), partition=Dyadic(side // 4)).explain(image, 0)
        for model in (Writes(WRITES[where]).eval(), sound)
    )
    for one, other in zip(found.games, expected.games, strict=True):
        np.testing.assert_allclose(one.values, other.values, rtol=1e-5)


def test_writes_that_depend_on_the_pixels_do_no_harm(rng):
    image = rng.random((3, 24, 24)).astype(np.float32)
    sound = lambda batch: torch.from_numpy(batch.copy()).flatten(1).sum(1)
    found, expected = (
        Explainer(model, baseline=Constant(0.5), partition=Dyadic(6)).explain(image, 0)
        for model in (Writes(None, only_bright=True).eval(), sound)
    )
    for one, other in zip(found.games, expected.games, strict=True):
        np.testing.assert_allclose(one.values, other.values, rtol=1e-5)


def test_a_model_that_shuffles_its_pixels_does_no_harm(rng):
    class Flips(torch.nn.Module):
        def forward(self, batch):
            scores = batch[..., :6].flatten(1).sum(1)
            batch.data.copy_(batch.flip(-1).clone())
            return scores

    image = rng.random((3, 24, 24)).astype(np.float32)
    sound = lambda batch: batch[..., :6].reshape(len(batch), -1).sum(1)
    baseline = Fixed(rng.random((3, 24, 24)).astype(np.float32))
    found, expected = (
        Explainer(model, baseline=baseline, partition=Dyadic(6)).explain(image, 0)
        for model in (Flips().eval(), sound)
    )
    for one, other in zip(found.games, expected.games, strict=True):
        np.testing.assert_allclose(one.values, other.values, rtol=1e-5)
