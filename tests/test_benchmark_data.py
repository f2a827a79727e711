"""The data sets as they are read, and the networks that were trained on them."""

from __future__ import annotations

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
Pictures = pytest.importorskip("PIL.Image")

from benchmarks.core import folders
from benchmarks.core.protocol import Example
from benchmarks.datasets import boards, malaria, photographs
from benchmarks.datasets.malaria import Malaria
from benchmarks.datasets.photographs import PHOTOGRAPHS
from benchmarks.datasets.platelets import CONCEPT, LEFT_OUT, Platelets
from benchmarks.models import local
from benchmarks.models.compact import Compact, folded
from benchmarks.training import boards as training_boards
from benchmarks.training import judge_boards, windows
from benchmarks.training import malaria as training_malaria
from benchmarks.training import platelets as training_platelets
from benchmarks.training.judge_smears import scores
from benchmarks.training.smears import Scene, Smear, window

pytestmark = pytest.mark.benchmarks

RBC, TROPHOZOITE, RING = "red blood cell", "trophozoite", "ring"
SIDE = 64
STEMS = {
    "trainval.txt": (
        "group44000/44000/44000001",
        *(f"group00041/00041/0004100{number}" for number in range(6)),
    ),
    "test.txt": ("group12000/12000/12000001",),
}


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv(folders.VARIABLE, str(tmp_path))
    return tmp_path


@pytest.fixture
def layout(home):
    """A few pairs of white boards, each with one black rectangle for a defect."""
    root = home / "deeppcb" / "PCBData"
    for listing, stems in STEMS.items():
        for stem in stems:
            _write_pair(root, stem)
        lines = [f"{stem}.jpg {_boxes_of(stem)}" for stem in stems]
        (root / listing).write_text("\n".join(lines) + "\n")
    return root


def _boxes_of(stem):
    group, number, name = stem.split("/")
    return f"{group}/{number}_not/{name}.txt"


def _write_pair(root, stem):
    template = np.full((SIDE, SIDE), 255, dtype=np.uint8)
    test = template.copy()
    test[16:24, 32:48] = 0
    for name, pixels in ((f"{stem}_test.jpg", test), (f"{stem}_temp.jpg", template)):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Pictures.fromarray(pixels).save(root / name, quality=100)
    (root / _boxes_of(stem)).parent.mkdir(parents=True, exist_ok=True)
    (root / _boxes_of(stem)).write_text("31 15 49 25 3\n")


class TestBoards:
    def test_a_pair_is_an_image_and_its_template(self, layout):
        found, template = boards.Boards(factor=2).examples("test")
        assert [found.name, template.name] == ["12000001_test", "12000001_temp"]
        assert [found.label("defect"), template.label("defect")] == [True, False]
        assert found.image.shape == (1, SIDE // 2, SIDE // 2)
        assert found.image[0, 8:12, 16:24].max() < 0.05
        assert found.objects["defect"] == (((7, 15), (13, 25)),)
        assert found.truths["defect"].sum() == 6 * 10
        np.testing.assert_array_equal(found.counterfactual, template.image)

    def test_the_last_sixth_of_each_group_is_held_out(self, layout):
        assert [pair.name for pair in boards.pairs("validation")] == ["00041005"]
        names = [pair.name for pair in boards.pairs("training")]
        assert names == [*(f"0004100{number}" for number in range(5)), "44000001"]

    @pytest.mark.parametrize("shape", [(320, 320), (57, 90)])
    def test_the_network_gives_two_opposite_logits(self, shape):
        logits = local.load()(torch.rand(2, 1, *shape))
        assert torch.isfinite(logits).all()
        torch.testing.assert_close(logits[:, 0], -logits[:, 1])

    def test_folding_the_normalisation_changes_nothing(self):
        torch.manual_seed(0)
        model = local.Local(normalised=True)
        model(torch.rand(4, 1, 64, 64))
        images = torch.rand(2, 1, 64, 64)
        expected = model.eval()(images)
        torch.testing.assert_close(local.fused(model)(images), expected, atol=1e-5, rtol=1e-5)

    @pytest.mark.parametrize(
        ("visible", "present", "known"),
        [(np.s_[:], True, True), (np.s_[..., 14:], False, True), (np.s_[..., 11:], False, False)],
        ids=["whole", "hidden", "cut"],
    )
    def test_a_tile_is_labelled_by_its_visible_spot(self, visible, present, known):
        template = torch.zeros(1, 1, windows.TILE, 3 * windows.TILE)
        test = template.clone()
        test[..., 4:12, 4:12] = 1
        mask = torch.zeros(template.shape, dtype=torch.bool)
        mask[visible] = True
        labels = windows.tile_labels(windows.show(windows.compare(test, template), mask))
        assert [bool(part[0, 0, 0]) for part in labels] == [present, known]
        assert [bool(part[0, 0, 2]) for part in labels] == [False, True]

    def test_the_threshold_moves_no_further_than_it_gains(self):
        labels = np.array([True, True, False, False])
        assert training_boards.threshold(np.array([3.0, 1.0, -1.0, -3.0]), labels) == 0.0
        assert training_boards.threshold(np.array([3.0, 2.0, 1.0, -3.0]), labels) == 1.5

    def test_scores_of_real_boards_are_on_record(self):
        pairs = _real(lambda: boards.pairs("test")[:2])
        recorded = json.loads((folders.RESULTS / "train_boards.json").read_text())["test"]["logits"]
        for pair in pairs:
            images = np.stack([boards.read_image(path, 2) for path in (pair.test, pair.template)])
            found = judge_boards.scores(local.load(), torch.from_numpy(images))
            np.testing.assert_allclose(found, recorded[pair.name], atol=1e-3)


def _real(read):
    try:
        return read()
    except folders.MissingDataError as missing:
        pytest.skip(str(missing))


def _entry(name, *objects):
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
    return {"image": {"pathname": f"/images/{name}"}, "objects": described}


@pytest.fixture
def smears(home, rng):
    """Three training images and one test image as the public download has them."""
    folder = home / "bbbc041"
    (folder / "images").mkdir(parents=True)
    listed = {
        "training": [
            _entry("b.png", (TROPHOZOITE, (4, 8, 20, 24)), (RBC, (0, 0, 4, 4))),
            _entry("a.png", (TROPHOZOITE, (4, 8, 20, 24))),
            _entry("c.png", (RBC, (0, 0, 4, 4))),
        ],
        "test": [_entry("t.png", (TROPHOZOITE, (5, 9, 21, 23)), (RING, (30, 50, 42, 61)))],
    }
    for split, entries in listed.items():
        (folder / f"{split}.json").write_text(json.dumps(entries))
        for described in entries:
            pixels = rng.integers(256, size=(42, 61, 3), dtype=np.uint8)
            Pictures.fromarray(pixels).save(folder / "images" / malaria.file_name(described))
    return folder


class TestMalaria:
    def test_pixels_are_means_of_whole_blocks(self, smears):
        (example,) = Malaria(factor=4).examples("test")
        raw = malaria.read(smears / "images" / "t.png")
        assert example.image.shape == (3, 10, 15)
        assert example.image[1, 2, 3] == pytest.approx(raw[8:12, 12:16, 1].mean() / 255, abs=1e-7)

    def test_boxes_are_scaled_outwards_and_filled(self, smears):
        (example,) = Malaria(factor=4).examples("test")
        assert example.objects[TROPHOZOITE] == (((1, 2), (6, 6)),)
        assert example.objects[RING] == (((7, 12), (10, 15)),)
        assert example.truths[TROPHOZOITE].sum() == 5 * 4
        assert example.truths[TROPHOZOITE][1:6, 2:6].all()

    def test_splits_share_no_image(self, smears):
        splits = [
            [example.name for example in Malaria().examples(split)]
            for split in ("training", "validation")
        ]
        assert splits == [["a.png", "c.png"], ["b.png"]]

    def test_folding_the_normalisation_changes_nothing(self):
        torch.manual_seed(0)
        model = Compact(norm=True)
        model(torch.rand(8, 3, 40, 40))  # moves the running statistics
        images = torch.rand(2, 3, 48, 40)
        with torch.no_grad():
            torch.testing.assert_close(folded(model)(images), model.eval()(images))

    def test_a_place_ignores_what_is_far_away(self):
        torch.manual_seed(0)
        model = Compact().eval()
        image = torch.rand(1, 3, 160, 160)
        other = image.clone()
        other[..., 80:] = 0.5
        with torch.no_grad():
            near, same = model.places(image), model.places(other)
        torch.testing.assert_close(near[..., :5], same[..., :5])
        assert not torch.allclose(near[..., 9:], same[..., 9:])

    @pytest.mark.parametrize(("hidden", "target"), [(0, 1), (8, 1), (16, -1), (30, 0), (32, 0)])
    def test_a_scene_asks_for_what_is_in_sight(self, hidden, target):
        scene = Scene(np.zeros((3, 96, 96), np.float32), np.zeros((96, 96), np.int16))
        scene.add(TROPHOZOITE, ((32, 32), (64, 64)), np.ones((32, 32), dtype=bool))
        where = np.zeros((96, 96), dtype=bool)
        where[: 32 + hidden] = True
        scene.hide(where, np.ones((3, 1, 1), np.float32))
        trophozoite, ring = scene.targets()
        assert trophozoite[6, 6] == target  # the place at pixel (48, 48), the middle
        assert not ring.any()
        assert trophozoite[0, 0] == 0

    def test_windows_shift_the_boxes_of_a_smear(self):
        boxes = ((TROPHOZOITE, ((60, 70), (80, 100))), (RBC, ((0, 0), (20, 20))))
        scene = window(Smear(np.zeros((3, 200, 200), np.float32), boxes), np.array([50, 60]), 96)
        assert scene.things == [(TROPHOZOITE, ((10, 10), (30, 40)), 20 * 30)]
        assert (scene.owners > 0).sum() == 20 * 30

    def test_calibration_puts_zero_between_the_classes(self):
        torch.manual_seed(0)
        model = self._brightness_meter()
        box = (((0, 0), (9, 9)),)
        examples = [
            Example(f"{level}", np.full((3, 48, 48), level, np.float32), {TROPHOZOITE: found}, {})
            for level, found in ((0.6, ()), (0.65, ()), (0.9, box), (0.95, box))
        ]
        training_malaria.calibrate(model, examples)
        logits = scores(model, [example.image for example in examples])[:, 0]
        assert (logits[:2] < 0).all()
        assert (logits[2:] > 0).all()

    @staticmethod
    @torch.no_grad()
    def _brightness_meter():
        """Return a network that answers more to brighter images, by 1 from black to white."""
        model = Compact().eval()
        for name, values in model.named_parameters():
            if name.endswith("weight"):
                values.abs_()
        black, white = model(torch.zeros(1, 3, 48, 48)), model(torch.ones(1, 3, 48, 48))
        model.head.weight.div_((white - black)[0, :, None, None, None])
        return model

    def test_scores_of_real_smears_are_on_record(self):
        examples = _real(
            lambda: [e for e, _ in zip(Malaria().examples("test"), range(2), strict=False)]
        )
        record = json.loads(training_malaria.RECORD.read_text())["test"]["scores"]
        found = scores(training_malaria.load(), [example.image for example in examples])
        for example, logits in zip(examples, found, strict=True):
            wanted = [record[example.name][concept] for concept in malaria.CONCEPTS]
            assert wanted == pytest.approx(logits, abs=1e-3)


def _annotation(*objects):
    """Return boxes (kind, left, top, right, bottom) as the public files have them."""
    names = ("xmin", "ymin", "xmax", "ymax")
    described = "".join(
        f"<object><name>{kind}</name><bndbox>"
        + "".join(f"<{name}>{value}</{name}>" for name, value in zip(names, box, strict=True))
        + "</bndbox></object>"
        for kind, *box in objects
    )
    return f"<annotation>{described}</annotation>"


@pytest.fixture
def blood(home, rng):
    """Three training images, one of which is left out, and one test image."""
    folder = home / "bccd"
    for name in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (folder / name).mkdir(parents=True)
    written = {
        "b": _annotation(("Platelets", 5, 9, 22, 31), ("RBC", 0, 0, 10, 10)),
        "a": _annotation(("WBC", 1, 1, 30, 30)),
        next(iter(LEFT_OUT)): _annotation(("Platelets", 5, 9, 22, 31)),
        "t": _annotation(("Platelets", 50, 30, 61, 43), ("Platelets", 0, 0, 8, 6)),
    }
    for name, text in written.items():
        (folder / "Annotations" / f"{name}.xml").write_text(text)
        pixels = rng.integers(256, size=(42, 60, 3), dtype=np.uint8)
        Pictures.fromarray(pixels).save(folder / "JPEGImages" / f"{name}.jpg")
    *known, test = written
    (folder / "ImageSets" / "Main" / "train.txt").write_text("\n".join(known) + "\n")
    (folder / "ImageSets" / "Main" / "test.txt").write_text(test + "\n")
    return folder


class TestPlatelets:
    def test_boxes_of_platelets_are_the_truth(self, blood):
        (example,) = Platelets(factor=2).examples("test")
        assert example.image.shape == (3, 21, 30)
        assert example.objects == {CONCEPT: (((15, 25), (21, 30)), ((0, 0), (3, 4)))}
        assert example.truths[CONCEPT].sum() == 6 * 5 + 3 * 4

    def test_clear_errors_are_left_out(self, blood):
        examples = {example.name: example for example in Platelets().examples("training")}
        assert list(examples) == ["a", "b"]
        assert [e.label(CONCEPT) for e in examples.values()] == [False, True]

    def test_other_spots_overlap_no_platelet(self, blood):
        given = training_platelets.material("training", 2)
        assert {kind: len(images) for kind, images in given.cells.items()} == {
            CONCEPT: 1,
            training_platelets.OTHER: 1,
        }
        assert given.cells[CONCEPT][0].shape == (3, 12, 9)

    def test_scores_of_real_photographs_are_on_record(self):
        examples = _real(
            lambda: [e for e, _ in zip(Platelets().examples("test"), range(2), strict=False)]
        )
        record = json.loads(training_platelets.RECORD.read_text())["test"]["scores"]
        found = scores(training_platelets.load(), [e.image for e in examples])[:, 0]
        assert [record[example.name] for example in examples] == pytest.approx(found, abs=1e-3)


@pytest.mark.parametrize(
    ("data", "source"),
    [
        (boards.Boards(), "tangsanli5201/DeepPCB"),
        (Malaria(), r"test.json.*bbbc\.broadinstitute\.org"),
        (Platelets(), r"test\.txt.*BCCD_Dataset"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_missing_data_and_splits_are_told(home, data, source):
    with pytest.raises(folders.MissingDataError, match=source):
        next(iter(data.examples("test")))
    with pytest.raises(ValueError, match=r"'dev'.*training, validation, test"):
        next(iter(data.examples("dev")))


@pytest.mark.parametrize("load", [training_malaria.load, training_platelets.load])
def test_an_empty_field_is_clearly_negative(load):
    model = load()
    assert not model.training
    with torch.no_grad():
        assert (model(torch.full((1, 3, 240, 320), 0.8)) < -1).all()
        assert torch.isfinite(model(torch.rand(2, 3, 64, 80))).all()


def test_photographs_have_boxes_and_one_name_for_a_class():
    questions = [question for one in PHOTOGRAPHS for question in one.questions]
    for question in questions:
        for (top, left), (bottom, right) in question.boxes:
            assert 0 <= top < bottom <= photographs.SIDE
            assert 0 <= left < right <= photographs.SIDE
    names = {(question.index, question.name) for question in questions}
    assert len(names) == len({index for index, _ in names})
    for photograph in PHOTOGRAPHS:
        assert photograph.image().shape == (3, photographs.SIDE, photographs.SIDE)
