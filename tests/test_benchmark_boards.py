"""The circuit boards: what the reader makes of their files, and what the trained network says."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
Picture = pytest.importorskip("PIL.Image")

from benchmarks.core.folders import RESULTS, VARIABLE, MissingDataError
from benchmarks.datasets import boards
from benchmarks.models import local
from benchmarks.training import boards as training
from benchmarks.training import judge_boards, windows

SIDE = 64
STEMS = {
    "trainval.txt": (
        "group44000/44000/44000001",
        *(f"group00041/00041/0004100{number}" for number in range(6)),
    ),
    "test.txt": ("group12000/12000/12000001",),
}
REAL = Path(os.environ.get(VARIABLE, "")) / "deeppcb" / "PCBData" / "trainval.txt"


@pytest.fixture
def layout(tmp_path, monkeypatch):
    """A few pairs of white boards, each with one black rectangle for a defect."""
    root = tmp_path / "deeppcb" / "PCBData"
    for listing, stems in STEMS.items():
        for stem in stems:
            write_pair(root, stem)
        lines = [f"{stem}.jpg {boxes_of(stem)}" for stem in stems]
        (root / listing).write_text("\n".join(lines) + "\n")
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    return root


def boxes_of(stem):
    group, number, name = stem.split("/")
    return f"{group}/{number}_not/{name}.txt"


def write_pair(root, stem):
    template = np.full((SIDE, SIDE), 255, dtype=np.uint8)
    test = template.copy()
    test[16:24, 32:48] = 0
    for name, pixels in ((f"{stem}_test.jpg", test), (f"{stem}_temp.jpg", template)):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Picture.fromarray(pixels).save(root / name, quality=100)
    (root / boxes_of(stem)).parent.mkdir(parents=True, exist_ok=True)
    (root / boxes_of(stem)).write_text("31 15 49 25 3\n")


@pytest.fixture
def examples(layout):
    return list(boards.Boards(factor=2).examples("test"))


def test_each_pair_gives_an_image_with_defects_and_one_without(examples):
    assert [example.name for example in examples] == ["12000001_test", "12000001_temp"]
    assert [example.label("defect") for example in examples] == [True, False]
    assert not examples[1].truths["defect"].any()


def test_images_are_grey_floats_averaged_over_blocks(examples):
    image = examples[0].image
    assert image.shape == (1, SIDE // 2, SIDE // 2)
    assert image.dtype == np.float32
    assert image[0, 8:12, 16:24].max() < 0.05
    assert image[0, :6].min() > 0.95


def test_boxes_grow_outwards_to_whole_pixels(examples):
    assert examples[0].objects["defect"] == (((7, 15), (13, 25)),)
    assert examples[0].truths["defect"].sum() == 6 * 10


def test_the_counterfactual_is_the_template(examples):
    np.testing.assert_array_equal(examples[0].counterfactual, examples[1].image)


def test_factor_one_keeps_every_pixel_and_box(layout):
    example = next(boards.Boards(factor=1).examples("test"))
    assert example.image.shape == (1, SIDE, SIDE)
    assert example.objects["defect"] == (((15, 31), (25, 49)),)


def test_the_last_sixth_of_each_group_is_held_out(layout):
    assert [pair.name for pair in boards.pairs("validation")] == ["00041005"]
    names = [pair.name for pair in boards.pairs("training")]
    assert names == [*(f"0004100{number}" for number in range(5)), "44000001"]


def test_an_unknown_split_is_refused(layout):
    with pytest.raises(ValueError, match="'train'"):
        boards.pairs("train")


def test_missing_data_says_where_it_comes_from(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(MissingDataError, match="tangsanli5201/DeepPCB"):
        next(boards.Boards().examples("test"))


@pytest.mark.parametrize("shape", [(320, 320), (160, 160), (57, 90)])
def test_images_of_any_size_get_two_opposite_logits(shape):
    logits = local.Local().eval()(torch.rand(2, 1, *shape))
    assert logits.shape == (2, 2)
    torch.testing.assert_close(logits[:, 0], -logits[:, 1])


def test_the_last_layer_still_has_places():
    model = local.Local().eval()
    assert model.last(model.early(torch.rand(1, 1, 64, 96))).shape == (1, 48, 8, 12)


def test_folding_the_normalisation_in_changes_nothing():
    torch.manual_seed(0)
    model = local.Local(normalised=True)
    model(torch.rand(4, 1, 64, 64))
    images = torch.rand(2, 1, 64, 64)
    expected = model.eval()(images)
    torch.testing.assert_close(local.fused(model)(images), expected, atol=1e-5, rtol=1e-5)


def test_trained_logits_are_finite():
    assert torch.isfinite(local.load()(torch.rand(2, 1, 160, 160))).all()


def test_an_edge_astray_is_no_difference_but_a_spot_is():
    template = torch.zeros(1, 1, 40, 40)
    template[..., :20] = 1
    test = torch.zeros(1, 1, 40, 40)
    test[..., :21] = 1
    test[..., 28:34, 28:34] = 1
    sure = windows.compare(test, template).sure
    assert not sure[..., :26].any()
    assert sure[..., 28:34, 28:34].sum() == 36


def shown(visible):
    """Show part of a pair of three tiles side by side, whose first holds one spot."""
    template = torch.zeros(1, 1, windows.TILE, 3 * windows.TILE)
    test = template.clone()
    test[..., 4:12, 4:12] = 1
    mask = torch.zeros(template.shape, dtype=torch.bool)
    mask[visible] = True
    return windows.tile_labels(windows.show(windows.compare(test, template), mask))


@pytest.mark.parametrize(
    ("visible", "present", "known"),
    [
        (np.s_[:], True, True),
        (np.s_[..., 14:], False, True),
        (np.s_[..., 11:], False, False),
    ],
    ids=["whole", "hidden", "cut"],
)
def test_a_tile_is_labelled_by_what_is_visible_of_its_spot(visible, present, known):
    labels = shown(visible)
    assert [bool(part[0, 0, 0]) for part in labels] == [present, known]
    assert [bool(part[0, 0, 2]) for part in labels] == [False, True]


def test_the_threshold_moves_no_further_than_it_gains():
    labels = np.array([True, True, False, False])
    assert training.threshold(np.array([3.0, 1.0, -1.0, -3.0]), labels) == 0.0
    assert training.threshold(np.array([3.0, 2.0, 1.0, -3.0]), labels) == 1.5


@pytest.mark.skipif(not REAL.exists(), reason=f"{VARIABLE} holds no DeepPCB")
def test_trained_scores_are_those_of_the_results():
    recorded = json.loads((RESULTS / "train_boards.json").read_text())["test"]["logits"]
    model = local.load()
    for pair in boards.pairs("test")[:2]:
        images = np.stack([boards.read_image(path, 2) for path in (pair.test, pair.template)])
        scores = judge_boards.scores(model, torch.from_numpy(images))
        np.testing.assert_allclose(scores, recorded[pair.name], atol=1e-3)
