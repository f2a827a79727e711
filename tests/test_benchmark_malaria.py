"""The malaria images as they are read, and the network that was trained on them."""

import json

import numpy as np
import pytest

Pictures = pytest.importorskip("PIL.Image")
torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from benchmarks.core import folders
from benchmarks.core.protocol import Example
from benchmarks.datasets import malaria
from benchmarks.datasets.malaria import Malaria
from benchmarks.models.compact import Compact, folded
from benchmarks.training import malaria as training
from benchmarks.training.judge_smears import scores
from benchmarks.training.smears import Scene, Smear, window

RBC, TROPHOZOITE, RING = "red blood cell", "trophozoite", "ring"


def entry(name, *objects, shape=(42, 61)):
    described = [
        {
            "category": category,
            "bounding_box": {
                "minimum": {"r": box[0], "c": box[1]},
                "maximum": {"r": box[2], "c": box[3]},
            },
        }
        for category, box in objects
    ]
    height, width = shape
    return {
        "image": {"pathname": f"/images/{name}", "shape": {"r": height, "c": width, "channels": 3}},
        "objects": described,
    }


@pytest.fixture
def smears(tmp_path, monkeypatch):
    """Write three training images and one test image as the public download has them."""
    monkeypatch.setenv(folders.VARIABLE, str(tmp_path))
    folder = tmp_path / "bbbc041"
    (folder / "images").mkdir(parents=True)
    listed = {
        "training": [
            entry("b.png", (TROPHOZOITE, (4, 8, 20, 24)), (RBC, (0, 0, 4, 4))),
            entry("a.png", (TROPHOZOITE, (4, 8, 20, 24))),
            entry("c.png", (RBC, (0, 0, 4, 4))),
        ],
        "test": [entry("t.png", (TROPHOZOITE, (5, 9, 21, 23)), (RING, (30, 50, 42, 61)))],
    }
    rng = np.random.default_rng(0)
    for split, entries in listed.items():
        (folder / f"{split}.json").write_text(json.dumps(entries))
        for described in entries:
            pixels = rng.integers(256, size=(42, 61, 3), dtype=np.uint8)
            Pictures.fromarray(pixels).save(folder / "images" / malaria.file_name(described))
    return folder


def test_pixels_are_means_of_whole_blocks(smears):
    (example,) = Malaria(factor=4).examples("test")
    raw = malaria.read(smears / "images" / "t.png")
    assert example.image.shape == (3, 10, 15)
    assert example.image.dtype == np.float32
    assert example.image[1, 2, 3] == pytest.approx(raw[8:12, 12:16, 1].mean() / 255, abs=1e-7)


def test_boxes_are_scaled_outwards_and_stay_within_the_image(smears):
    (example,) = Malaria(factor=4).examples("test")
    assert example.objects[TROPHOZOITE] == (((1, 2), (6, 6)),)
    assert example.objects[RING] == (((7, 12), (10, 15)),)


def test_truths_are_the_filled_boxes(smears):
    (example,) = Malaria(factor=4).examples("test")
    assert example.truths[TROPHOZOITE].sum() == 5 * 4
    assert example.truths[TROPHOZOITE][1:6, 2:6].all()
    assert example.truths[RING].shape == example.image.shape[1:]


def test_other_categories_are_no_objects_but_name_the_group(smears):
    by_name = {example.name: example for example in Malaria().examples("training")}
    assert not any(by_name["c.png"].label(concept) for concept in malaria.CONCEPTS)
    assert by_name["c.png"].group == "no parasite"
    assert by_name["a.png"].group == TROPHOZOITE


def test_training_and_validation_share_no_image_and_leave_none_out(smears):
    kept, held = (
        [example.name for example in Malaria().examples(split)]
        for split in ("training", "validation")
    )
    assert kept == ["a.png", "c.png"]
    assert held == ["b.png"]


def test_an_unknown_split_names_those_there_are(smears):
    with pytest.raises(ValueError, match=r"'dev'.*training, validation, test"):
        list(Malaria().examples("dev"))


def test_missing_images_say_where_they_come_from(tmp_path, monkeypatch):
    monkeypatch.setenv(folders.VARIABLE, str(tmp_path))
    with pytest.raises(folders.MissingDataError, match=r"test.json.*bbbc\.broadinstitute\.org"):
        list(Malaria().examples("test"))
    with pytest.raises(folders.MissingDataError, match="bbbc041_cells"):
        list(malaria.cells("training"))


def test_cells_come_with_their_kind_in_the_order_of_names(tmp_path, monkeypatch):
    monkeypatch.setenv(folders.VARIABLE, str(tmp_path))
    for kind, name in (("ring", "2"), ("ring", "1"), ("trophozoite", "3")):
        folder = tmp_path / "bbbc041_cells" / "train" / kind
        folder.mkdir(parents=True, exist_ok=True)
        grey = np.full((12, 17, 3), 50 * int(name), dtype=np.uint8)
        Pictures.fromarray(grey).save(folder / f"cell_{name}.jpg")
    found = [
        (cell.kind, round(255 * float(cell.image.mean()))) for cell in malaria.cells("training")
    ]
    assert found == [("trophozoite", 150), ("ring", 50), ("ring", 100)]
    assert next(malaria.cells("training")).image.shape == (3, 3, 4)


@pytest.mark.parametrize("shape", [(16, 16), (33, 50), (300, 400)])
def test_network_gives_a_logit_per_concept_for_images_of_any_size(shape):
    model = Compact().eval()
    images = torch.rand(2, 3, *shape)
    with torch.no_grad():
        assert model(images).shape == (2, 2)
        assert model.places(images).shape == (2, 2, -(-shape[0] // 8), -(-shape[1] // 8))


def test_folding_does_not_change_the_network():
    torch.manual_seed(0)
    model = Compact(norm=True)
    model(torch.rand(8, 3, 40, 40))  # moves the running statistics
    images = torch.rand(2, 3, 48, 40)
    with torch.no_grad():
        torch.testing.assert_close(folded(model)(images), model.eval()(images))


def test_what_is_far_away_does_not_matter_to_a_place():
    torch.manual_seed(0)
    model = Compact().eval()
    image = torch.rand(1, 3, 160, 160)
    other = image.clone()
    other[..., 80:] = 0.5
    with torch.no_grad():
        near, same = model.places(image), model.places(other)
    torch.testing.assert_close(near[..., :5], same[..., :5])
    assert not torch.allclose(near[..., 9:], same[..., 9:])


def scene_with(category, hidden_rows):
    """Draw one cell of 32 x 32 pixels in the middle of 96 x 96, some of its rows hidden."""
    scene = Scene(np.zeros((3, 96, 96), np.float32), np.zeros((96, 96), np.int16))
    scene.add(category, ((32, 32), (64, 64)), np.ones((32, 32), dtype=bool))
    where = np.zeros((96, 96), dtype=bool)
    where[: 32 + hidden_rows] = True
    scene.hide(where, np.ones((3, 1, 1), np.float32))
    return scene


@pytest.mark.parametrize(("hidden_rows", "target"), [(0, 1), (8, 1), (16, -1), (30, 0), (32, 0)])
def test_a_scene_asks_for_what_is_mostly_in_sight_and_not_for_what_is_hidden(hidden_rows, target):
    trophozoite, ring = scene_with(TROPHOZOITE, hidden_rows).targets()
    assert trophozoite[6, 6] == target  # the place at pixel (48, 48), the middle
    assert not ring.any()
    assert trophozoite[0, 0] == 0


def test_a_cell_of_no_concept_asks_for_nothing():
    assert not scene_with(RBC, 0).targets().any()


def test_pasted_cells_hide_what_they_lie_on(rng):
    scene = Scene(np.full((3, 32, 32), 0.5, np.float32), np.zeros((32, 32), np.int16))
    scene.add(TROPHOZOITE, ((0, 0), (32, 32)), np.ones((32, 32), dtype=bool))
    scene.paste(rng, RING, np.full((3, 32, 32), 0.2, np.float32))
    trophozoite, ring = scene.targets()
    assert trophozoite[2, 2] != 1
    assert ring[2, 2] == 1
    assert scene.image[0, 16, 16] < 0.5


def test_windows_shift_the_boxes_of_a_smear():
    boxes = ((TROPHOZOITE, ((60, 70), (80, 100))), (RBC, ((0, 0), (20, 20))))
    smear = Smear(np.zeros((3, 200, 200), np.float32), boxes)
    scene = window(smear, np.array([50, 60]), 96)
    assert scene.things == [(TROPHOZOITE, ((10, 10), (30, 40)), 20 * 30)]
    assert (scene.owners[10:30, 10:40] == 1).all()
    assert (scene.owners > 0).sum() == 20 * 30


@torch.no_grad()
def brightness_meter():
    """Return a network that answers more to brighter images, by 1 from black to white."""
    model = Compact().eval()
    for name, values in model.named_parameters():
        if name.endswith("weight"):
            values.abs_()
    black, white = model(torch.zeros(1, 3, 48, 48)), model(torch.ones(1, 3, 48, 48))
    model.head.weight.div_((white - black)[0, :, None, None, None])
    return model


def test_calibration_puts_zero_between_the_classes():
    torch.manual_seed(0)
    model = brightness_meter()
    box = (((0, 0), (9, 9)),)
    examples = [
        Example(f"{level}", np.full((3, 48, 48), level, np.float32), {TROPHOZOITE: found}, {})
        for level, found in ((0.6, ()), (0.65, ()), (0.9, box), (0.95, box))
    ]
    images = [example.image for example in examples]
    assert (scores(model, images)[:, 0] < 0).all()
    training.calibrate(model, examples)
    logits = scores(model, images)[:, 0]
    assert (logits[:2] < 0).all()
    assert (logits[2:] > 0).all()


def test_trained_network_is_ready_for_use():
    model = training.load()
    assert not model.training
    seen = []
    model.last.register_forward_hook(lambda module, given, out: seen.append(out))
    with torch.no_grad():
        logits = model(torch.rand(2, 3, 64, 80))
    assert torch.isfinite(logits).all()
    assert logits.shape == (2, 2)
    assert seen[0].shape[::2] == (2, 8)


def test_an_empty_field_is_clearly_negative():
    plain = torch.full((1, 3, 300, 400), 0.85)
    with torch.no_grad():
        assert (training.load()(plain) < -1).all()


def test_scores_of_the_real_images_are_those_on_record():
    try:
        given = Malaria().examples("test")
        examples = [next(given), next(given)]
    except folders.MissingDataError as missing:
        pytest.skip(str(missing))
    record = json.loads(training.RECORD.read_text())["test"]["scores"]
    found = scores(training.load(), [example.image for example in examples])
    for example, logits in zip(examples, found, strict=True):
        assert [record[example.name][c] for c in malaria.CONCEPTS] == pytest.approx(
            logits, abs=1e-3
        )
