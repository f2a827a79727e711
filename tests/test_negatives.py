"""Images that the model calls negative: looked at, not explained, and said so everywhere."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from commands import fine, folder_of_user

import hshap
from hshap import Bisection, Constant, Explainer, Output, Positives

COUNT = 40


def part(number, sides=(32, 32)):
    """A part: dark noise, and on odd ones a bright defect of 5 x 4 pixels."""
    rng = np.random.default_rng(number)
    image = rng.random((1, *sides), dtype=np.float32) * np.float32(0.4)
    if number % 2:
        row, column = rng.integers(0, sides[0] - 5), rng.integers(0, sides[1] - 4)
        image[0, row : row + 5, column : column + 4] = 1.0
    return image


class Model:
    """The chance of a defect, by the brightest pixel; counts inputs and calls."""

    def __init__(self):
        self.calls = []

    def __call__(self, batch):
        self.calls.append(len(batch))
        return 1 / (1 + np.exp(-20 * (batch.max(axis=(1, 2, 3)) - 0.7)))


def explained(positives, **parts):
    model = Model()
    pairs = [(part(number), 0) for number in range(COUNT)]
    made = Explainer(model, **parts).explain_many(pairs, positives=positives)
    return {one.position: one for one in made}, model.calls


GIVEN = {"baseline": Constant(0.0), "partition": Bisection(min_size=4)}


@pytest.mark.parametrize("parts", [{}, GIVEN], ids=["chosen", "given"])
def test_clean_images_take_two_evaluations_and_others_the_same(parts):
    before, calls_before = explained(None, **parts)
    after, calls = explained(Positives(), **parts)
    assert sum(calls) <= 0.6 * sum(calls_before)
    for number in range(COUNT):
        if number % 2:
            assert after[number].boxes() == before[number].boxes()
            assert after[number].evaluations == before[number].evaluations
            assert after[number].is_explained
            assert not after[number].negative
        else:
            assert after[number].leaves == ()
            assert after[number].evaluations == 2
            assert after[number].score == before[number].score
            assert after[number].negative.endswith("is not above one half")


def test_images_are_decided_in_batches():
    model = Model()
    explainer = Explainer(hshap.Batched(model, batch_size=32, check_batches=False), **GIVEN)
    pairs = [(part(2 * number), 0) for number in range(64)]  # all clean
    assert len(list(explainer.explain_many(pairs, positives=Positives()))) == 64
    assert model.calls == [32, 1, 32]  # the images, and once the baseline that they share


DECISIONS = [
    # a single output: a probability above one half, any other a logit above 0
    (0, [0.5], [0.1], "0.5 is not above one half"),
    (0, [0.51], [0.1], ""),
    (0, [0.4], [-3.0], ""),
    (0, [-0.1], [-3.0], "-0.1 is not above 0"),
    (0, [7.0], [0.2], ""),
    # several: the top class, of logits and of a softmax
    (1, [2.0, 1.0], [0.0, 0.0], "output 0 is higher"),
    (0, [2.0, 1.0], [0.0, 0.0], ""),
    (1, [0.55, 0.45], [0.5, 0.5], "output 0 is higher"),
    (1, [0.3, 0.4, 0.3], [0.3, 0.3, 0.4], ""),
    # several probabilities of their own
    (1, [0.9, 0.6], [0.1, 0.1], ""),
    (1, [0.1, 0.4], [0.1, 0.1], "0.4 is not above one half"),
    # an activation that was asked for decides
    (Output(1, "sigmoid"), [9.0, 1.0], [0.0, 0.0], ""),
    (Output(1, "sigmoid"), [-9.0, -1.0], [0.0, 0.0], "0.269 is not above one half"),
    (Output(1, "softmax"), [1.5, 1.0], [0.0, 0.0], "output 0 is higher"),
    # a callable has no known scale
    (lambda outputs: outputs[:, 0] - 5, [1.0, 2.0], [0.0, 0.0], ""),
]


def test_the_decision_follows_the_scale_of_outputs():
    for target, outputs, hidden, against in DECISIONS:
        found = Positives().reason(target, np.array(outputs), np.array([hidden]))
        assert found == against, (target, outputs)
    # A least score takes the place of the decision.
    rule, hidden = Positives(0.2), np.array([[0.0]])
    assert rule.reason(0, np.array([0.2]), hidden) == ""
    assert rule.reason(0, np.array([0.19]), hidden) == "0.19 is below 0.2"
    assert rule.reason(1, np.array([9.0, 0.3]), np.array([[0.0, 0.0]])) == ""
    with pytest.raises(hshap.ArgumentError, match="min_score must be a finite number of any size"):
        Positives(float("nan"))


def test_a_score_that_its_baseline_has_is_not_explained():
    def bright(batch):
        return batch.mean(axis=(1, 2, 3)) + 0.6  # positive on every image

    images = [np.full((1, 8, 8), 0.1), np.full((1, 8, 8), 0.3)]
    explainer = Explainer(bright, baseline=Constant(0.2), partition=Bisection(min_size=4))
    dark, light = sorted(
        explainer.explain_many([(one, 0) for one in images], positives=Positives()),
        key=lambda one: one.position,
    )
    assert dark.negative == "0.7 is not above its baseline, which scores 0.8"
    assert (dark.is_explained, light.is_explained) == (False, True)
    # Nothing is asked after the decision: no partition is made, and no search begins.
    model = Model()
    flat = Explainer(hshap.Batched(lambda batch: 0 * model(batch) + 3.0, check_batches=False))
    (found,) = flat.explain_many([(part(1), 0)], positives=Positives())
    assert "not above its baseline" in found.negative
    assert model.calls == [2]


def test_a_negative_image_claims_nothing_and_reads_alike():
    """Two pixels cancel out, so the image scores as the baseline does, and neither is ignored."""
    image = np.ones((1, 8, 8))
    explainer = hshap.Explainer(
        lambda batch: batch[:, 0, 1, 1] - batch[:, 0, 6, 6], hshap.Constant(0.0), hshap.Dyadic(1)
    )
    (found,) = explainer.explain_many([(image, 0)], positives=hshap.Positives())
    assert not found.is_explained
    for read in (found.at(min_size=4), found.at(tolerance=0.1)):
        assert read.how_sure == found.how_sure
        assert read.boxes() == []


def test_a_single_call_explains_and_says_that_it_is_negative():
    explainer = Explainer(Model(), **GIVEN)
    clean, defective = (explainer.explain(part(number), 0) for number in (0, 1))
    assert clean.is_explained
    assert clean.leaves
    assert clean.negative.endswith("is not above one half")
    assert "negative: " in repr(clean)
    assert not defective.negative
    assert "negative" not in repr(defective)


def test_targets_of_one_image_are_decided_one_by_one():
    def three(batch):
        score = batch.max(axis=(1, 2, 3))
        return np.stack([score, -score, 0.5 * score], axis=1)

    explainer = Explainer(three, **GIVEN)
    found = explainer.explain(part(1), [1, 0, 2], positives=Positives())
    assert [one.class_index for one in found] == [1, 0, 2]
    assert [one.is_explained for one in found] == [False, True, False]
    assert found[1].boxes() == explainer.explain(part(1), 0).boxes()


@pytest.mark.parametrize("kind", ["raises", "nan"])
@pytest.mark.parametrize("parts", [{}, GIVEN], ids=["chosen", "given"])
def test_an_image_that_fails_costs_no_other(parts, kind):
    def fails(batch):
        score = batch.max(axis=(1, 2, 3))
        if kind == "raises" and score.max() > 0.9:
            raise RuntimeError("too bright")
        return np.where(score > 0.9, np.nan, score)

    errors = {}
    pairs = [(part(number), 0) for number in range(4)]
    made = Explainer(fails, **parts).explain_many(
        [*pairs, ("no image", 0)], positives=Positives(), on_error=errors.__setitem__
    )
    assert sorted(one.position for one in made) == [0, 2]
    assert sorted(errors) == [1, 3, 4]
    told = {"raises": "too bright", "nan": "the model gave nan"}[kind]
    assert all(told in str(errors[number]) for number in (1, 3))


def test_random_baselines_are_compared_by_their_mean():
    references = np.stack([np.zeros((1, 32, 32)), np.ones((1, 32, 32)) * 0.9])
    explainer = Explainer(
        Model(), baseline=hshap.References(references), partition=Bisection(min_size=8)
    )
    found = {
        one.position: one
        for one in explainer.explain_many(
            [(part(number), 0) for number in range(4)], positives=Positives()
        )
    }
    alone = explainer.explain(part(1), 0)
    assert found[1].boxes() == alone.boxes()
    assert found[1].baseline_score == found[0].baseline_score == alone.baseline_score
    assert not found[0].is_explained


# Runs


@pytest.fixture
def images():
    return {f"{number:02d}": part(number) for number in range(COUNT)}


def explain_run(model, images, out, **options):
    return hshap.runs.explain_dataset(
        Explainer(model, **GIVEN), images, out, target=0, model_id="m", **options
    )


def test_a_run_lists_negative_images(tmp_path, images):
    model, every, told = Model(), Model(), []
    run = explain_run(model, images, tmp_path / "run", progress=told.append)
    before = explain_run(every, images, tmp_path / "all", positives=None)
    assert sum(model.calls) <= 0.6 * sum(every.calls)
    assert (told[-1].done, told[-1].negative, told[-1].failed) == (20, 20, 0)
    assert [key.image for key in run.keys] == [name for name in images if int(name) % 2]
    assert {key: found for key, found in before.boxes().items() if int(key[0]) % 2} == run.boxes()
    assert [row["image"] for row in run.negatives] == [n for n in images if not int(n) % 2]
    assert all(row["score"] == before[row["image"]].score for row in run.negatives)
    assert run["00"].leaves == ()
    assert run["00"].negative == run.negatives[0]["reason"]
    assert run.query("select count(*) as n from negatives") == [{"n": 20}]
    assert hshap.runs.verify(run).is_sound
    assert hshap.runs.verify(run).rows == 40
    (shard,) = run.shards["negatives"]
    path = tmp_path / "run" / shard.name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    problems = hshap.runs.verify(tmp_path / "run").problems
    assert any("negatives/" in problem for problem in problems)


def test_another_rule_asks_negative_images_again(tmp_path, images):
    model = Model()

    def call(positives):
        del model.calls[:]
        return explain_run(model, images, tmp_path, positives=positives)

    first = call(Positives())
    again = call(Positives())
    probes = sum(model.calls)
    assert probes <= 50
    assert again.negatives == first.negatives
    least = call(Positives(0.9))
    assert 20 <= sum(model.calls) - probes <= 24  # once each, and the baseline
    assert len(least) == 20
    whole = call(None)
    assert len(whole) == 40
    assert whole.negatives == []  # explained by now
    assert whole.errors == []


# Commands

MODULE = """
import numpy as np
def defect(batch):
    return 1 / (1 + np.exp(-20 * (batch.max(axis=(1, 2, 3)) - 0.7)))
"""
OPTIONS = ("-t", 0, "--baseline", "constant:0", "--partition", "bisection", "--min-size", 4)


@pytest.fixture
def words(tmp_path, monkeypatch, blank_pictures):
    """The options for a model, beside ten images of which five are clean."""
    pillow = pytest.importorskip("PIL.Image")
    with folder_of_user(tmp_path, monkeypatch, MODULE) as name:
        Path("images").mkdir()
        for number in range(10):
            pixels = np.rint(np.repeat(part(number), 3, axis=0) * 255).astype(np.uint8)
            pillow.fromarray(pixels.transpose(1, 2, 0)).save(f"images/{number}.png")
        yield ("-m", f"{name}:defect", *OPTIONS)


def entries(out="found"):
    record = json.loads(Path(out, "summary.json").read_text())
    images = record["images"]
    return record, {Path(one["image"]).name: one["explanations"][0] for one in images}


def test_negative_is_told_everywhere(words):
    done = fine("explain", "images", *words, "-o", "found", "--strict")
    assert done.stdout.count(" negative ") >= 5
    assert "negative" not in done.stderr  # once is enough
    assert not done.stderr.count(".png")  # it raises no concern
    told = "5 of 10 images are negative, not explained: that takes the model's decision"
    assert told in " ".join(done.stdout.split())
    record, images = entries()
    assert {one["how_sure"] for one in images.values()} == {"negative", "supported"}
    assert (record["done"], record["negative"]) == (10, 5)
    clean = [name for name, one in images.items() if not one["explained"]]
    assert clean == [f"{number}.png" for number in range(0, 10, 2)]
    assert images["0.png"]["negative"].endswith("is not above one half")
    assert images["0.png"]["evaluations"] == 2
    assert images["0.png"]["picture"] is None
    assert not Path("found/0.png").exists()
    assert Path("found/index.html").read_text().count('"sure":"negative"') >= 5
    fine("export", "found", "-f", "coco", "-o", "coco.json")
    coco = json.loads(Path("coco.json").read_text())
    assert len(coco["images"]) == 10
    assert len({one["image_id"] for one in coco["annotations"]}) == 5
    fine("export", "found", "-f", "geojson", "-o", "geojson")
    assert json.loads(Path("geojson/0.geojson").read_text())["features"] == []


@pytest.mark.frameworks
def test_tables_of_negative_images_have_their_whole(words):
    pytest.importorskip("pandas")
    fine("explain", "images/0.png", *words, "-o", "found")
    fine("export", "found", "-f", "csv", "-o", "0.csv")
    (heading, row) = Path("0.csv").read_text().splitlines()
    assert dict(zip(heading.split(","), row.split(","), strict=True))["leaf"] == "False"


def test_another_rule_explains_what_is_left(words):
    fine("explain", "images", *words, "-o", "found")
    before = Path("found/0.npz").stat().st_mtime_ns
    fine("explain", "images", *words, "-o", "found")
    assert Path("found/0.npz").stat().st_mtime_ns == before
    assert (entries()[0]["negative"], entries()[0]["evaluations"]) == (5, 0)
    again = ("explain", "images", *words, "-o", "found")
    fine(*again, "--all")
    assert entries()[0]["negative"] == 0
    fine(*again, "--force", "--min-score", 0.999)
    assert entries()[0]["negative"] == 10
    assert "exclude each other" in fine(*again, "--all", "--min-score", 1, code=2).stderr


def test_run_counts_and_shows_negative_images(words):
    again = ("run", "images", *words, "-o", "RUN", "--model-id", "m")
    done = fine(*again, "--page", "page.html")
    assert "5 explanations of 5 images, 5 negative, and 0 failed" in done.stdout
    assert "10 of 10 images (5 explained, 5 negative, 0 failed)" in done.stderr
    assert Path("page.html").read_text().count('"sure":"negative"') >= 5
    told = json.loads(fine(*again, "--json").stdout)
    assert (told["images"], told["negative"], told["failed"]) == (5, 5, 0)
    fine("export", "RUN", "-f", "coco", "-o", "coco.json")
    coco = json.loads(Path("coco.json").read_text())
    assert (len(coco["images"]), len({a["image_id"] for a in coco["annotations"]})) == (10, 5)
    assert "10 rows" in fine("verify", "RUN").stdout
    fine(*again, "--all")
    assert len(hshap.runs.open("RUN")) == 10


def test_tiles_and_exam_leave_negative_images_out(words):
    image = np.zeros((64, 64), np.uint8)
    np.save("clean.npy", image)
    image[40:44, 20:24] = 255
    np.save("spot.npy", image)
    words = (*words, "--channels", "grey")
    fine("tiles", "clean.npy", "spot.npy", *words, "--side", 16, "-o", "tiled")
    _, images = entries("tiled")
    assert [images[name]["explained"] for name in ("clean.npy", "spot.npy")] == [False, True]
    assert images["clean.npy"]["findings"] == []
    assert [images[name]["how_sure"] for name in images] == ["negative", "supported"]
    assert "negative: not explained" in repr(hshap.large.TiledExplanation.load("tiled/clean-0.npz"))
    np.save("scan.npy", np.zeros((4, 32, 32), np.uint8))
    done = fine("exam", "scan.npy", *words, "-o", "exam")
    assert "negative, not explained" in " ".join(done.stdout.split())
    assert entries("exam")[1]["scan.npy"]["slices"] == []
