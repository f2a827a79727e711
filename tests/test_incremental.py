"""`Incremental` gives the scores of full passes, for every network and every set of regions."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from full_passes import ALWAYS, every_game, explained_alike, layers_on_patches, one_colour
from networks import ARCHITECTURES, ODD, OTHER_SHAPES, SHAPE, conv, network, tail
from random_networks import program, with_statistics
from torch import nn

import hshap
from hshap import Bisection, Constant, Dyadic, Explainer, Fixed, Incremental, References, models

pytestmark = [
    pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel"),
    pytest.mark.filterwarnings("ignore:Incremental runs every input in full"),
]
GUARDED = {"a hook on a norm", "a hook on a ReLU", "low precision inside"}
"""The trace of these differs, or they take a mean over the batch: a comparison may show it."""

IN_FULL = {
    *(
        "a branch",
        "a branch on rows",
        "a layer's own forward",
        "another name",
        "another name, by sign",
    ),
    *("a part overwritten", "a hook after", "a hook before", "a hook on a convolution"),
    *("a hook before a convolution", "its own forward", "its own buffer", "overwritten twice"),
    *("pruned", "through data", "weights of the image", "weights normed"),
    *("read before and after", "dropped, overwritten", "channels last, in place"),
}
"""These cannot run on patches."""


def random_networks_agree(seeds):
    """Compare random networks with full passes; return the kinds of their layers on patches."""
    kinds = set()
    for seed in seeds:
        made = program(seed)
        try:
            kinds |= layers_on_patches(made.module(), made.shape, seed) or set()
        except Exception as error:  # noqa: BLE001, the network belongs to every failure
            pytest.fail(f"{error!r} of the network of seed {seed}, shape {made.shape}:\n{made}")
    return kinds


@pytest.mark.parametrize("first", range(0, 240, 60))
def test_random_networks_score_like_full_passes(first):
    kinds = random_networks_agree(range(first, first + 60))
    assert {"Conv2d", "cat", "interpolate", "LayerNorm"} <= kinds
    assert len(kinds) > 40


@pytest.mark.fuzz
@pytest.mark.parametrize("first", range(1000, 7000, 500))
def test_thousands_of_random_networks_agree(first):
    random_networks_agree(range(first, first + 500))


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(n, marks=pytest.mark.fuzz) for n in range(4, 80))]
)
def test_random_networks_explain_alike(seed):
    made = program(seed)
    channels, *grid = made.shape
    module, shape = made.module().float(), (channels, *(2 * n for n in grid))
    try:
        module(torch.rand(1, *shape))
    except RuntimeError:  # made for one size
        shape = made.shape
    explained_alike(module, shape, seed)


@pytest.mark.parametrize("name", sorted({*ARCHITECTURES, *ODD} - GUARDED))
def test_named_networks_score_like_full_passes(name):
    kinds = layers_on_patches(network(name), OTHER_SHAPES.get(name, SHAPE), seed=1, cases=6)
    assert (kinds is None) == (name in IN_FULL)


def larger(name):
    channels, *grid = OTHER_SHAPES.get(name, SHAPE)
    fixed = name in {"flat", "a number for each row", "clamped by place"}
    return (channels, *grid) if fixed else (channels, *(2 * n for n in grid))


@pytest.mark.parametrize("name", [*ARCHITECTURES, *sorted(IN_FULL | GUARDED), "calls by keyword"])
def test_named_networks_explain_alike(name):
    partition = Bisection(13) if name in IN_FULL | GUARDED else None
    made = explained_alike(network(name), larger(name), 0, partition=partition)
    assert bool(made.incremental) == (name not in IN_FULL | GUARDED)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sorted({*ARCHITECTURES, *ODD} - GUARDED))
@pytest.mark.parametrize("seed", range(1, 5))
def test_every_network_explains_alike(name, seed):
    explained_alike(network(name), larger(name), seed)


KERNELS = [
    *product([1, 2, 3, 4], [1, 2, 3], ["same"]),
    *[(1, 1, 1), (2, 1, 1), (3, 1, 2), (3, 1, 4), (5, 1, 3), (3, 2, 4)],
]


@pytest.mark.parametrize("axes", [1, 2])
def test_padding_is_exact_at_every_place(axes):
    """A patch at each place of an axis; the other axis shows its far border."""
    from hshap.evaluators.incremental.network import Network
    from hshap.evaluators.incremental.patches import Patch

    torch.manual_seed(0)
    side, others, kind = 11, (10,) * (axes - 1), {1: nn.Conv1d, 2: nn.Conv2d}[axes]
    for kernel, dilation, padding in KERNELS:
        model = kind(1, 2, kernel, padding=padding, dilation=dilation).eval()
        made, anchor = Network(model), torch.rand(1, 1, *others, side)
        with torch.inference_mode():
            activations, _ = made.activations(anchor)
            for size, start in [(m, n) for m in (1, 2, 5) for n in range(side - m + 1)]:
                data = torch.rand(1, 1, *(2,) * (axes - 1), size)
                patch = Patch(data, ((8,) * (axes - 1) + (start,),), anchor)
                found = made.run(patch, activations)
                torch.testing.assert_close(found, model(patch.full()), atol=1e-6, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_numbers_of_low_precision_are_copied_as_they_are(dtype):
    layers = nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.ZeroPad2d((0, 2, 1, 0)), nn.MaxPool2d(2)
    module = nn.Sequential(*layers, nn.AdaptiveMaxPool2d(1), nn.Flatten()).eval()
    module.register_buffer("kind", torch.zeros((), dtype=dtype))
    image = np.random.default_rng(0).normal(size=(2, 40, 48)).astype(np.float32)
    games = [
        Explainer(way, Constant(-0.1), Dyadic(10), every_game).explain(image, target=1).games
        for way in (hshap.Batched(module), Incremental(module, cost_policy=ALWAYS))
    ]
    assert all(np.array_equal(a.values, b.values) for a, b in zip(*games, strict=True))


# Images of one colour, whose activations come from a smaller image

COLOURED = {
    "strides": lambda: (
        nn.Conv2d(3, 4, 7, 2, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(4, 4, 3, 2, 1), nn.Sigmoid(), nn.AvgPool2d(2), nn.Conv2d(4, 2, 2),
    ),
    "ceil mode": lambda: (nn.MaxPool2d(3, 2, 1, ceil_mode=True), conv(3, 2)),
    "stride of three": lambda: (nn.Conv2d(3, 4, 5, 3, 1), nn.Conv2d(4, 4, 3, 3)),
    "same": lambda: (nn.Conv2d(3, 4, (4, 2), padding="same", dilation=3),),
    "padding": lambda: (nn.ConstantPad2d((1, 3, 2, 0), 0.7), nn.Conv2d(3, 2, 3)),
    "upsampling": lambda: (nn.Conv2d(3, 2, 3), nn.Upsample(scale_factor=3), nn.ReLU()),
    "bilinear": lambda: (conv(3, 4, 5, 2), nn.Upsample(scale_factor=2, mode="bilinear"), conv(4)),
    "group norm": lambda: (conv(), nn.ReLU(), nn.GroupNorm(2, 4), conv(4)),
    "one place": lambda: (nn.ReLU(), nn.GroupNorm(1, 3)),
}  # fmt: skip
NOT_COLOURED = {
    "circular": lambda: (conv(3, 2, padding_mode="circular"),),
    "a large receptive field": lambda: (nn.Conv2d(3, 2, 3, dilation=80),),
}


def coloured(name):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = {**COLOURED, **NOT_COLOURED}[name]()
        pooled = nn.AdaptiveAvgPool2d(1), nn.Flatten()
        return with_statistics(nn.Sequential(*layers, *pooled)).eval()


@pytest.mark.parametrize("grid", [(192, 256), (201, 163), (97, 480)])
@pytest.mark.parametrize("name", COLOURED)
def test_one_colour_is_computed_in_a_smaller_image(name, grid):
    assert one_colour(coloured(name), (3, *grid), seed=0) <= 0.5


@pytest.mark.parametrize("name", NOT_COLOURED)
def test_other_networks_see_one_colour_in_full(name):
    assert one_colour(coloured(name), (3, 192, 192), seed=0) is None


def test_random_networks_agree_over_one_colour():
    shares = []
    for seed in range(60):
        made = program(seed)
        channels, *grid = made.shape
        try:
            found = one_colour(made.module().float(), (channels, *(4 * n for n in grid)), seed)
        except (RuntimeError, hshap.evaluators.incremental.steps.OverwrittenError):
            continue  # made for one size, or overwrites what it reads: a run falls back
        shares += [] if found is None else [found]
    assert len(shares) > 20


# Large images: a crop is compared, and boxes inside of known boxes are computed along their sides

GRID = (364, 364)
DRAWN = np.random.default_rng(4).random((3, *GRID), dtype=np.float32)
LARGE = {
    "strides": coloured,
    "bilinear": coloured,
    "circular": coloured,
    "group norm": coloured,
    "hourglass": network,
    "low precision inside": network,
}


@pytest.mark.parametrize("baseline", ["one colour", "any", "two draws"])
@pytest.mark.parametrize("name", LARGE)
def test_large_images_explain_alike(name, baseline):
    numbers = np.random.default_rng(3).random((2, 3, *GRID), dtype=np.float32)
    baselines = {"one colour": Constant((0.3, -0.2, 0.9)), "any": Fixed(numbers[0])}
    baselines["two draws"] = References(np.stack([np.full_like(numbers[0], 0.4), numbers[1]]))
    parts = {"baseline": baselines[baseline], "partition": Bisection(GRID[0] // 2)}
    module = LARGE[name](name)
    made = explained_alike(module, (3, *GRID), 0, **parts, channels_last=name == "bilinear")
    expected = "failed" if name in GUARDED else "passed" if made.incremental else "not made"
    assert made.comparison == expected


def test_deep_boxes_in_large_images_explain_alike():
    parts = {"baseline": Constant(0.2), "partition": Bisection(92)}
    assert explained_alike(coloured("strides"), (3, *GRID), 0, **parts).incremental > 30
    model = nn.Sequential(conv(), nn.ReLU(), tail()).eval()
    parts["baseline"] = Fixed(np.random.default_rng(4).random((3, *GRID), dtype=np.float32))
    assert explained_alike(model, (3, *GRID), 1, **parts).incremental > 30


@pytest.mark.parametrize("baseline", [Constant(0.2), Fixed(DRAWN)], ids=["one colour", "any"])
@pytest.mark.parametrize("partition", [Bisection(60), Dyadic(100)], ids=["halves", "quarters"])
def test_games_in_several_contexts_explain_alike(partition, baseline):
    """With all else shown, the stand-in is a box over the image."""
    image, parts = np.random.default_rng(5).random((3, *GRID), dtype=np.float32), []
    module = coloured("strides")
    for way in (hshap.Batched(module), Incremental(module, cost_policy=ALWAYS)):
        search = hshap.BestFirst(90, contexts=4)
        made = Explainer(way, baseline, partition, search).explain(image, target=0)
        parts.append([(g.region, c.number, c.values) for g in made.games for c in g.contexts])
    assert made.provenance.incremental > 40
    assert {1, 2, 3} <= {number for _, number, _ in parts[0]}
    for (region, number, dense), (other, same, found) in zip(*parts, strict=True):
        assert (region, number) == (other, same)
        np.testing.assert_allclose(found, dense, rtol=0, atol=1e-5 * np.abs(dense).max())


# Networks of other libraries


@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ConvNext", {"hidden_sizes": [8, 12, 16, 20], "depths": [1, 1, 2, 1]}),
        ("ConvNextV2", {"hidden_sizes": [8, 12, 16, 20], "depths": [1, 1, 2, 1]}),
        ("RegNet", {"layer_type": "x", "groups_width": 4}),
        ("RegNet", {"layer_type": "y", "groups_width": 4}),
        ("ResNet", {}),
        ("MobileNetV2", {"depth_multiplier": 0.2}),
        ("Bit", {"embedding_size": 8, "num_groups": 2}),
    ],
)
def test_models_of_transformers_run_on_patches(name, options):
    """They check the shape of their input, take several inputs and return an object."""
    transformers = pytest.importorskip("transformers")
    small = {"embedding_size": 8, "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}
    sizes = small if name in {"RegNet", "ResNet", "Bit"} else {}
    config = getattr(transformers, f"{name}Config")(**sizes | options)
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}ForImageClassification")(config).eval()
    assert layers_on_patches(model, (3, 64, 64), seed=0, cases=2)
    to_the_end = "Patches run to the end." in Incremental(model).report((3, 64, 64))
    gated = name in {"ConvNextV2", "Bit"} or options.get("layer_type") == "y"
    assert to_the_end == (not gated)
    if name in {"ConvNext", "ResNet"}:
        processor = transformers.ViTImageProcessorPil(
            image_mean=[0.4, 0.5, 0.6], image_std=[0.2] * 3
        )
        ready = models.transformers(model, processor, resize=False)
        assert layers_on_patches(ready, (3, 64, 64), seed=0, cases=2)
        assert "Patches run to the end." in Incremental(ready).report((3, 64, 64))
