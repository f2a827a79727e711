"""Images are read channels first; other orders are refused, or taken as the caller says."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import same_explanation

import hshap
from hshap import Bisection, Constant, Explainer, Fixed, Mean, References, cycle_spin
from hshap.errors import ArgumentError


def brightest(batch):
    return batch.reshape(len(batch), -1).max(axis=1)


def explainer(shape, model=brightest, baseline=None, partition=None):
    """Return an explainer whose two games suit an image of any shape."""
    largest = max(shape)
    return Explainer(model, baseline or Constant(0.0), partition or Bisection(largest // 2 + 1))


def image(*shape):
    return np.random.default_rng(3).random(shape)


PLAUSIBLE = {
    "a grey image": (1, 64, 48),
    "a colour image": (3, 64, 48),
    "a colour image with opacity": (4, 64, 48),
    "two channels": (2, 64, 48),
    "a small image": (3, 4, 4),
    "a narrow image": (1, 90, 1),
    "a wide image": (1, 1, 90),
    "a hyperspectral image": (200, 145, 145),
    "a small hyperspectral image": (200, 16, 16),
    "feature maps": (512, 7, 7),
    "a signal": (1, 1000),
    "an electrocardiogram": (12, 5000),
    "an electroencephalogram": (64, 256),
    "a short signal": (12, 10),
    "a grey volume": (1, 16, 64, 64),
    "a volume of several contrasts": (4, 16, 64, 64),
    "a volume of many contrasts": (6, 16, 64, 64),
    "a video, channels first": (3, 16, 112, 112),
    "a tiny volume": (1, 4, 4, 4),
    "volumes over time": (1, 5, 16, 16, 16),
}


@pytest.mark.parametrize("case", PLAUSIBLE)
def test_plausible_images_need_no_layout(case):
    shape = PLAUSIBLE[case]
    assert explainer(shape).explain(image(*shape), target=0).grid == shape[1:]


VIDEO = r"looks like a batch of images, or a video .* layout='TCHW' for a video"
LAST = r"looks like channels last; pass it channels first: numpy\.moveaxis\(image, -1, 0\).*layout="
IMPLAUSIBLE = {
    "a batch of one colour image": ((1, 3, 64, 48), VIDEO),
    "a batch of one small image": ((1, 3, 8, 8), VIDEO),
    "a batch of one grey image": ((1, 1, 64, 48), VIDEO),
    "a batch of many": ((32, 3, 64, 48), VIDEO),
    "a batch with opacity": ((5, 4, 64, 48), VIDEO),
    "a video with time first": ((16, 3, 112, 112), VIDEO),
    "a grey video with time first": ((16, 1, 112, 112), VIDEO),
    "a short video": ((3, 3, 112, 112), VIDEO),
    "a batch of one volume": ((1, 1, 16, 64, 64), VIDEO),
    "a batch of one video": ((1, 3, 16, 112, 112), VIDEO),
    "a colour image, channels last": ((64, 48, 3), LAST),
    "a grey image, channels last": ((64, 48, 1), LAST),
    "a tall narrow one": ((200, 16, 3), LAST),
    "a video, channels last": ((16, 112, 112, 3), LAST),
    "a volume, channels last": ((16, 64, 64, 1), LAST),
    "a batch, channels last": ((1, 64, 48, 3), LAST),
    "a grey image without channels": ((64, 48), r"a grey image without .* image\[None\]"),
    "a wide image without channels": ((480, 640), r"a grey image without .* layout='YX'"),
    "a signal with channels last": ((5000, 12), "a signal with channels last"),
}


@pytest.mark.parametrize("case", IMPLAUSIBLE)
def test_an_implausible_image_is_refused_with_the_way_it_was_read(case):
    shape, told = IMPLAUSIBLE[case]
    count = "1 channel" if shape[0] == 1 else f"{shape[0]} channels"
    read = f"{count} of {' x '.join(map(str, shape[1:]))} pixels"
    with pytest.raises(ArgumentError, match=told) as caught:
        explainer(shape).explain(image(*shape), target=0)
    assert f"image has shape {shape}, that is {read}" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ((200, 16, 3), "CYX"),
        ((200, 16, 3), "CHW"),
        ((1, 3, 64, 48), "CZYX"),
        ((16, 3, 12, 12), "CTHW"),
        ((64, 48), "CT"),
        ((20, 30), "CX"),
        ((16, 12, 12, 3), "CDHW"),
    ],
)
def test_a_caller_may_insist_that_the_channels_come_first(shape, layout):
    found = explainer(shape).explain(image(*shape), target=0, layout=layout)
    assert found.grid == shape[1:]
    assert found.settings["layout"] == layout


@pytest.mark.parametrize(
    ("shape", "layout", "first"),
    [
        ((24, 20, 3), "HWC", (3, 24, 20)),
        ((24, 20, 3), "YXC", (3, 24, 20)),
        ((8, 3, 24, 20), "TCHW", (3, 8, 24, 20)),
        ((8, 24, 20, 3), "THWC", (3, 8, 24, 20)),
        ((8, 24, 20, 2), "ZYXC", (2, 8, 24, 20)),
        ((24, 2, 20), "YCX", (2, 24, 20)),
        ((100, 12), "TC", (12, 100)),
        ((24, 20), "YX", (1, 24, 20)),
        ((8, 24, 20), "ZYX", (1, 8, 24, 20)),
        ((50,), "T", (1, 50)),
    ],
)
def test_a_layout_moves_the_channels_to_the_front(shape, layout, first):
    """The model, the baseline, the partition and the maps see channels first."""
    seen = []

    def model(batch):
        seen.append(batch.shape[1:])
        return brightest(batch)

    pixels = image(*shape)
    place = layout.find("C")
    moved = pixels[None] if place < 0 else np.moveaxis(pixels, place, 0).copy()
    made = explainer(first, model, baseline=Fixed(np.zeros(first)))
    found = made.explain(pixels, target=0, layout=layout)
    assert same_explanation(
        found, made.explain(moved, target=0, layout="C" + "TZYX"[-moved.ndim + 1 :])
    )
    assert set(seen) == {first}
    assert found.grid == found.attribution().shape == first[1:]


def test_every_way_to_explain_takes_a_layout():
    pixels = image(24, 20, 3)
    before = pixels.copy()
    made = explainer((3, 24, 20))
    alone = made.explain(pixels, target=0, layout="HWC")
    (many,) = made.explain_many([(pixels, 0)], layout="HWC")
    assert same_explanation(alone, many)
    spun = cycle_spin(made, pixels, 0, shifts=[0], layout="HWC")
    assert np.array_equal(spun.attribution(), alone.attribution())
    assert spun.members[0].settings["layout"] == "HWC"
    with pytest.raises(ArgumentError, match="channels last"):
        cycle_spin(made, pixels, 0, shifts=[0])
    assert np.array_equal(pixels, before)
    assert pixels.flags.writeable


LAYOUTS = ["", "C", "NCHW", "HWCC", "hwc", "HHC", "CAB", "C H W", 3, ["C", "H"], b"CHW"]


def test_a_layout_that_does_not_fit_is_refused():
    made, pixels = explainer((3, 8, 8)), image(3, 8, 8)
    for layout in LAYOUTS:
        for call in (
            lambda layout=layout: made.explain(pixels, target=0, layout=layout),
            lambda layout=layout: next(made.explain_many([(pixels, 0)], layout=layout)),
            lambda layout=layout: cycle_spin(made, pixels, 0, shifts=[0], layout=layout),
        ):
            with pytest.raises(ArgumentError, match="layout must name each axis of one image once"):
                call()
    told = r"layout='HWC' has 3 axes, but image has shape \(1, 3, 8, 8\); pass one letter"
    with pytest.raises(ArgumentError, match=told):
        explainer((8, 8)).explain(image(1, 3, 8, 8), target=0, layout="HWC")


def test_baselines_and_measures_take_any_shape_that_the_image_has():
    """The shape of the image decides; a baseline is compared with it."""
    pixels = image(200, 16, 3)
    for baseline in (
        Fixed(np.zeros_like(pixels)),
        Mean(np.zeros((4, *pixels.shape))),
        References(np.zeros((2, *pixels.shape))),
    ):
        made = explainer((16, 3), baseline=baseline)
        found = made.explain(pixels, target=0, layout="CYX")
        assert found.grid == (16, 3)
    curve = hshap.metrics.ablation_curve(brightest, pixels, found.attribution(), 0.0)
    assert len(curve.scores)
    wrong = explainer((16, 3), baseline=Fixed(np.zeros((16, 3, 200))))
    with pytest.raises(ArgumentError, match=r"baseline has shape \(16, 3, 200\), but the image"):
        wrong.explain(pixels, target=0, layout="CYX")
