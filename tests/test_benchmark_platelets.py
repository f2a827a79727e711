"""The photographs with platelets as they are read, their network, and the made malaria smears."""

import json

import numpy as np
import pytest

Pictures = pytest.importorskip("PIL.Image")
torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")
pytest.importorskip("skimage")

from benchmarks.core import folders, tasks
from benchmarks.core.protocol import Example
from benchmarks.datasets import malaria_made
from benchmarks.datasets.malaria_made import MadeSmears
from benchmarks.datasets.platelets import CONCEPT, LEFT_OUT, Platelets
from benchmarks.training import platelets as training
from benchmarks.training.judge_smears import scores
from benchmarks.training.smears import Material, Smear

TROPHOZOITE = malaria_made.CONCEPT


def annotation(*objects):
    """Write boxes (kind, left, top, right, bottom) as the public files have them."""
    names = ("xmin", "ymin", "xmax", "ymax")
    described = "".join(
        f"<object><name>{kind}</name><bndbox>"
        + "".join(f"<{name}>{value}</{name}>" for name, value in zip(names, box, strict=True))
        + "</bndbox></object>"
        for kind, *box in objects
    )
    return f"<annotation>{described}</annotation>"


@pytest.fixture
def blood(tmp_path, monkeypatch, rng):
    """Write three training images, one of which is left out, and one test image."""
    monkeypatch.setenv(folders.VARIABLE, str(tmp_path))
    folder = tmp_path / "bccd"
    for name in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (folder / name).mkdir(parents=True)
    written = {
        "b": annotation(("Platelets", 5, 9, 22, 31), ("RBC", 0, 0, 10, 10)),
        "a": annotation(("WBC", 1, 1, 30, 30)),
        next(iter(LEFT_OUT)): annotation(("Platelets", 5, 9, 22, 31)),
        "t": annotation(("Platelets", 50, 30, 61, 43), ("Platelets", 0, 0, 8, 6)),
    }
    for name, text in written.items():
        (folder / "Annotations" / f"{name}.xml").write_text(text)
        pixels = rng.integers(256, size=(42, 60, 3), dtype=np.uint8)
        Pictures.fromarray(pixels).save(folder / "JPEGImages" / f"{name}.jpg")
    *known, test = written
    (folder / "ImageSets" / "Main" / "train.txt").write_text("\n".join(known) + "\n")
    (folder / "ImageSets" / "Main" / "test.txt").write_text(test + "\n")
    return folder


def test_boxes_of_platelets_are_the_truth(blood):
    (example,) = Platelets(factor=2).examples("test")
    assert example.image.shape == (3, 21, 30)
    assert example.objects == {CONCEPT: (((15, 25), (21, 30)), ((0, 0), (3, 4)))}
    assert example.truths[CONCEPT].sum() == 6 * 5 + 3 * 4


def test_images_come_by_name_without_the_clear_errors(blood):
    examples = {example.name: example for example in Platelets().examples("training")}
    assert list(examples) == ["a", "b"]
    assert [e.label(CONCEPT) for e in examples.values()] == [False, True]


def test_an_unknown_split_names_those_there_are(blood):
    with pytest.raises(ValueError, match=r"'dev'.*training, validation, test"):
        list(Platelets().examples("dev"))


def test_missing_images_say_where_they_come_from(tmp_path, monkeypatch):
    monkeypatch.setenv(folders.VARIABLE, str(tmp_path))
    with pytest.raises(folders.MissingDataError, match=r"test\.txt.*BCCD_Dataset"):
        list(Platelets().examples("test"))


def test_spots_that_are_no_platelets_overlap_none(blood):
    given = training.material("training", 2)
    assert [smear.image.shape for smear in given.smears] == [(3, 21, 30)] * 2
    assert {kind: len(images) for kind, images in given.cells.items()} == {
        CONCEPT: 1,
        training.OTHER: 1,
    }
    assert given.cells[CONCEPT][0].shape == (3, 12, 9)
    assert given.mean.shape == (3, 1, 1)


def test_windows_ask_for_the_platelets_in_sight(rng):
    image = np.full((3, 200, 200), 0.7, np.float32)
    smear = Smear(image, ((CONCEPT, ((90, 90), (110, 110))),))
    spot = np.full((3, 20, 20), 0.3, np.float32)
    given = Material((smear,), {CONCEPT: [spot], training.OTHER: [spot]}, image[:, :1, :1])
    nowhere = (np.zeros((0, 2), dtype=np.int64),)
    images, targets = training.batch(rng, given, nowhere, training.Settings(batch_size=16))
    assert images.shape == (16, 3, 96, 96)
    assert targets.shape == (16, 1, 12, 12)
    assert images.dtype == torch.float32
    assert {-1, 0, 1} == set(targets.unique().tolist())


def test_trained_network_is_ready_for_use():
    model = training.load()
    assert not model.training
    with torch.no_grad():
        assert model(torch.rand(2, 3, 64, 80)).shape == (2, 1)
        plain = torch.full((1, 3, 240, 320), 0.7)
        assert (model(plain) < -1).all()


def test_scores_of_the_real_images_are_those_on_record():
    try:
        given = Platelets().examples("test")
        examples = [next(given), next(given)]
    except folders.MissingDataError as missing:
        pytest.skip(str(missing))
    record = json.loads(training.RECORD.read_text())["test"]["scores"]
    found = scores(training.load(), [example.image for example in examples])[:, 0]
    assert [record[example.name] for example in examples] == pytest.approx(found, abs=1e-3)


def test_a_platelet_alone_is_found_and_the_mean_colour_is_not_one():
    """Explanations show parts of an image on the mean colour: the record says how that goes."""
    shown = json.loads(training.RECORD.read_text())["games_on_validation"]
    assert shown["mean_colour"]["mean"] < 0.1
    assert shown["one_platelet_box"]["mean"] > 2 * shown["all_but_the_boxes"]["mean"]


@pytest.fixture
def smears(tmp_path, monkeypatch):
    """Write two test smears, one with a parasite, one training smear, and parasites cut out."""
    monkeypatch.setenv(folders.VARIABLE, str(tmp_path))
    folder = tmp_path / "bbbc041"
    (folder / "images").mkdir(parents=True)
    grey = Pictures.fromarray(np.full((120, 160, 3), 220, dtype=np.uint8))

    def entry(name, *categories):
        grey.save(folder / "images" / name)
        box = {"minimum": {"r": 40, "c": 40}, "maximum": {"r": 70, "c": 70}}
        objects = [{"category": category, "bounding_box": box} for category in categories]
        return {"image": {"pathname": f"/images/{name}"}, "objects": objects}

    healthy = malaria_made.HEALTHY
    test = [entry("healthy.png", healthy), entry("infected.png", healthy, TROPHOZOITE)]
    (folder / "test.json").write_text(json.dumps(test))
    (folder / "training.json").write_text(json.dumps([entry("photograph.png", healthy)]))
    cells = tmp_path / "bbbc041_cells" / "holdout" / TROPHOZOITE
    cells.mkdir(parents=True)
    for number in range(malaria_made.MOST):
        dark = np.full((30, 34, 3), 20 + 10 * number, dtype=np.uint8)
        Pictures.fromarray(dark).save(cells / f"cell_{number}.jpg")


class TestMadeSmears:
    FIELD = np.full((3, 60, 80), 0.9, np.float32)
    HEALTHY = (((10, 10), (26, 26)), ((30, 40), (46, 56)), ((50, 70), (60, 80)))

    def made(self, seed):
        parasites = [np.full((3, 14, 18), level, np.float32) for level in (0.2, 0.3, 0.4, 0.5)]
        rng = np.random.default_rng(seed)
        return malaria_made.made(rng, "x", self.FIELD, self.HEALTHY, parasites)

    @pytest.mark.parametrize("seed", range(8))
    def test_parasites_lie_in_their_boxes_and_nothing_else_changes(self, seed):
        example = self.made(seed)
        changed = (example.image != example.counterfactual).any(axis=0)
        assert changed.any()
        assert not changed[~example.truths[TROPHOZOITE]].any()
        boxes = example.objects[TROPHOZOITE]
        assert 1 <= len(boxes) <= malaria_made.MOST
        assert example.truths[TROPHOZOITE].sum() == len(boxes) * 14 * 18  # none overlap
        for (top, left), (bottom, right) in boxes:
            middle = example.image[:, (top + bottom) // 2, (left + right) // 2]
            assert (middle < 0.9).all()

    def test_the_same_seed_makes_the_same_image(self):
        assert np.array_equal(self.made(3).image, self.made(3).image)

    def test_mirrored_boxes_stay_on_their_cells(self, rng):
        image = np.zeros((1, 20, 30), np.float32)
        image[:, 2:5, 20:28] = 1
        for _ in range(8):
            turned, (((t, u), (b, v)),) = malaria_made.mirrored(rng, image, (((2, 20), (5, 28)),))
            assert turned[:, t:b, u:v].all()
            assert turned.sum() == 3 * 8

    def test_a_smear_without_room_gets_no_parasite(self, rng):
        parasite = [np.full((3, 70, 70), 0.2, np.float32)] * 4
        example = malaria_made.made(rng, "x", self.FIELD, self.HEALTHY, parasite)
        assert not example.label(TROPHOZOITE)

    def test_made_images_are_of_smears_without_parasites(self, smears):
        examples = list(MadeSmears(each=3, factor=2).examples("test"))
        assert [example.name for example in examples] == ["healthy-0", "healthy-1", "healthy-2"]
        assert all(example.label(TROPHOZOITE) for example in examples)
        assert examples[0].image.shape == (3, 60, 80)

    def test_training_images_are_photographs(self, smears):
        (example,) = MadeSmears(factor=2).examples("training")
        assert example.name == "photograph.png"
        assert example.counterfactual is None

    def test_only_images_that_the_pasted_cells_turned_are_explained(self):
        class Bright(torch.nn.Module):
            def forward(self, images):
                present = images.mean((1, 2, 3)) - 0.5
                return torch.stack([torch.zeros_like(present), present], dim=1)

        def example(name, before):
            grey = np.full((3, 4, 4), before, np.float32)
            return Example(name, np.ones((3, 4, 4), np.float32), {}, {}, counterfactual=grey)

        made = iter([example("turned", 0.2), example("positive before", 0.8)])
        kept = list(tasks.turned_positive(Bright(), made))
        assert [e.name for e in kept] == ["turned"]
        assert kept[0].counterfactual is None
