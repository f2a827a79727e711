"""Templates: the default call notices a baseline of the same scene, and no other baseline."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from typer.testing import CliRunner

import hshap
from hshap._util.smoothing import gaussian
from hshap.cli.app import app
from hshap.explainer.choosing_parts import partition_by_template
from hshap.partitions.spots import usual_size
from hshap.partitions.templates import is_template

SEEDS = st.integers(0, 2**32 - 1)


def scene(rng, grid=(64, 80), channels=1):
    """Rectangles of several colours: a layout with edges all over."""
    out = np.full((channels, *grid), 0.5)
    for _ in range(40):
        box = tuple(
            slice(start, start + int(rng.integers(4, 20)))
            for start in (int(rng.integers(-4, side)) for side in grid)
        )
        box = tuple(slice(max(one.start, 0), one.stop) for one in box)
        out[(slice(None), *box)] = rng.random((channels,) + (1,) * len(grid))
    return out


def with_findings(rng, template, count=3, side=5):
    """Paste squares that differ clearly from the template; return the image and their places."""
    image, places = template.copy(), []
    for number in range(count):
        corner = [int(rng.integers(0, n - side)) for n in template.shape[1:]]
        corner[-1] = number * template.shape[-1] // count + 2  # apart from each other
        box = tuple(slice(start, start + side) for start in corner)
        image[(slice(None), *box)] = np.where(template[(slice(None), *box)].mean() > 0.5, 0.0, 1.0)
        places.append(box)
    return image, places


def jpeg(image, quality):
    file = io.BytesIO()
    Image.fromarray(np.rint(np.clip(image[0], 0, 1) * 255).astype(np.uint8)).save(
        file, "JPEG", quality=quality
    )
    return np.asarray(Image.open(file), dtype=float)[None] / 255


CHANGES = {
    "none": lambda image, rng: image,
    "noise": lambda image, rng: image + rng.normal(0, 0.05, image.shape),
    "jpeg": lambda image, rng: jpeg(image, 50),
    "light": lambda image, rng: 0.9 * image + 0.03,
    "shade": lambda image, rng: image * np.linspace(0.85, 1.0, image.shape[-1]),
    "a shift": lambda image, rng: np.roll(image, 1, axis=-1),
    "softer": lambda image, rng: gaussian(image, 0.5, range(1, image.ndim)),
}


@pytest.mark.parametrize("change", CHANGES)
@settings(max_examples=6)
@given(SEEDS)
def test_templates_are_noticed_after_changes(change, seed):
    rng = np.random.default_rng(seed)
    template = scene(rng)
    image, _ = with_findings(rng, template)
    assert is_template(CHANGES[change](image, rng), template)


OTHERS = {
    "a colour": lambda image, rng: np.full_like(image, rng.random()),
    "its own colour": lambda image, rng: hshap.OwnColour()(image)(())[0],
    "a blur of 1": lambda image, rng: gaussian(image, 1.0, range(1, image.ndim)),
    "a blur of 2": lambda image, rng: gaussian(image, 2.0, range(1, image.ndim)),
    "a blur of 8": lambda image, rng: gaussian(image, 8.0, range(1, image.ndim)),
    "a mean with others": lambda image, rng: np.mean([image, *(scene(rng) for _ in range(3))], 0),
    "a mean of others": lambda image, rng: np.mean([scene(rng) for _ in range(8)], 0),
    "another scene": lambda image, rng: scene(rng),
    "noise": lambda image, rng: rng.random(image.shape),
    "its negative": lambda image, rng: 1 - image,
    "itself": lambda image, rng: image,
}


@pytest.mark.parametrize("other", OTHERS)
@settings(max_examples=6)
@given(SEEDS)
def test_no_other_baseline_is_taken_for_a_template(other, seed):
    rng = np.random.default_rng(seed)
    image, _ = with_findings(rng, scene(rng))
    assert not is_template(image, OTHERS[other](image, rng))


@pytest.mark.parametrize("grid", [(1,), (5, 1), (2, 2), (30,), (16, 20), (8, 9, 10)])
def test_noise_is_no_template_of_noise(grid):
    for seed in range(5):
        image, other = np.random.default_rng(seed).random((2, 2, *grid))
        assert not is_template(image, other)
        assert not is_template(image, np.full_like(image, 0.5))


@pytest.mark.parametrize("grid", [(200,), (64, 80), (24, 26, 28)])
def test_signals_and_volumes_have_templates_too(grid):
    rng = np.random.default_rng(3)
    template = scene(rng, grid, channels=2)
    image, _ = with_findings(rng, template, count=2)
    assert is_template(image, template)
    assert partition_by_template(image, template) == hshap.Spots("auto")
    assert partition_by_template(image, template, needed=["no_such_library"]) is None


@settings(max_examples=8)
@given(SEEDS, st.integers(2, 30), st.sampled_from([0.0, 0.05]))
def test_automatic_cells_fit_the_differences(seed, side, noise):
    rng = np.random.default_rng(seed)
    difference = np.abs(rng.normal(0, noise, (200, 200))) if noise else np.zeros((200, 200))
    for row, column in ((20, 30), (90, 140), (150, 40)):
        difference[row : row + side, column : column + side] = 1.0
    # Smoothing enlarges marks of a few pixels.
    assert side + 10 - 1 <= usual_size(difference) <= max(side, 4) + 10 + 2


def test_noise_gets_no_cells():
    rng = np.random.default_rng(0)
    template = scene(rng, (160, 160))
    image, places = with_findings(rng, template, count=4)
    noisy = image + rng.normal(0, 0.05, image.shape)
    for cells in (hshap.Spots("auto"), hshap.Spots(11)):
        labels = cells.tree(noisy, template).labels
        assert labels.max() <= 2 * len(places)
        outside = labels == labels.max()
        assert not any(outside[box].any() for box in places)


def test_many_differences_get_larger_cells(rng):
    image = np.zeros((1, 1300, 1300))
    image[0, 9::19, 9::19] = rng.uniform(0.8, 1.0, (68, 68))
    tree = hshap.Spots("auto").tree(image, np.zeros_like(image))
    assert 500 < tree.labels.max() <= 4096
    with pytest.raises(hshap.ArgumentError, match='pass a larger cell_size, or "auto"'):
        hshap.Spots(13).compare(image, np.zeros_like(image))


def sees(places, images, limit=0.2):
    """A model that has a score for each finding that is shown, and reacts to nothing else."""
    template, image = images

    def model(batch):
        near = [np.abs(batch[:, :, *box] - image[:, *box]).max(axis=(1, 2, 3)) for box in places]
        return (np.stack(near, axis=1) < limit).sum(axis=1).astype(float)

    assert model(template[None])[0] == 0
    return model


@pytest.mark.parametrize("change", ["none", "noise", "light"])
def test_the_default_call_takes_cells(change):
    rng = np.random.default_rng(5)
    template = scene(rng, (96, 128))
    image, places = with_findings(rng, template)
    image = CHANGES[change](image, rng)
    found = hshap.Explainer(sees(places, (template, image)), hshap.Fixed(template)).explain(
        image, target=0
    )
    assert found.settings["partition"] == {"type": "Spots", "cell_size": "auto"}
    assert "the baseline shows the same scene but for a few places" in found.settings.chosen
    assert "\n" not in found.settings.chosen
    assert len(found.boxes(merge=False)) == len(places)
    for box in places:
        assert found.attribution()[box].sum() > 0
    assert found.concerns == ()
    given = hshap.Explainer(
        sees(places, (template, image)), hshap.Fixed(template), hshap.Bisection(8)
    )
    assert given.explain(image, target=0).settings["partition"]["type"] == "Bisection"


@pytest.mark.parametrize(
    "baseline",
    [
        hshap.Constant(0.5),
        hshap.OwnColour(),
        hshap.Blur(0.5),
        hshap.Blur(3.0),
        None,
    ],
    ids=repr,
)
def test_other_baselines_get_no_cells(baseline):
    rng = np.random.default_rng(6)
    image, _ = with_findings(rng, scene(rng))
    found = hshap.Explainer(lambda b: b.max(axis=(2, 3)), baseline).explain(image, target=0)
    assert found.settings["partition"]["type"] != "Spots"


def test_images_may_have_own_templates():
    rng = np.random.default_rng(9)
    templates = [scene(rng) for _ in range(3)]
    made = [with_findings(rng, template) for template in templates]
    models = [sees(places, (t, image)) for t, (image, places) in zip(templates, made, strict=True)]

    def model(batch):
        return np.stack([one(batch) for one in models], axis=1)

    triples = [(image, i, hshap.Fixed(templates[i])) for i, (image, _) in enumerate(made)]
    plain = (made[0][0], 0)  # the explainer's own baseline
    explainer = hshap.Explainer(model, hshap.Constant(0.5), search=hshap.DepthFirst(0.5))
    found = sorted(explainer.explain_many([*triples, plain]), key=lambda one: one.position)
    for i in range(3):
        alone = hshap.Explainer(model, hshap.Fixed(templates[i]), search=hshap.DepthFirst(0.5))
        single = alone.explain(made[i][0], target=i)
        assert found[i].leaves == single.leaves
        assert found[i].settings["baseline"] == single.settings["baseline"]
    assert found[3].settings["baseline"]["type"] == "Constant"


@pytest.mark.parametrize("wrong", [np.zeros((1, 4, 4)), "template.png", hshap.Fixed])
def test_a_third_entry_that_is_no_baseline_is_refused(wrong):
    explainer = hshap.Explainer(lambda b: b.max(axis=(2, 3)))
    with pytest.raises(hshap.ArgumentError, match="entry 0 has the baseline"):
        next(explainer.explain_many([(np.eye(8)[None], 0, wrong)], on_error=_raise))


def _raise(position, error):
    raise error


MODEL = """
import numpy as np
def white(batch):
    return (batch.min(axis=1) > 0.99).mean(axis=(1, 2))[:, None].astype(float)
"""


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A folder with images and their templates; returns a function that runs the command."""
    runner = CliRunner()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"templates_{abs(hash(str(tmp_path)))}"
    Path(f"{name}.py").write_text(MODEL)
    rng = np.random.default_rng(10)
    for folder in ("images", "templates"):
        Path(folder).mkdir()
    for number in range(2):
        pixels = np.rint(0.9 * scene(rng)[0] * 255).astype(np.uint8)
        Image.fromarray(pixels).save(f"templates/{number}.{('png', 'bmp')[number]}")
        pixels[10:16, 20:26] = pixels[40:46, 60:66] = 255
        Image.fromarray(pixels).save(f"images/{number}.png")

    def run(*words):
        return runner.invoke(app, ["explain", "images", "-m", f"{name}:white", "--all", *words])

    return run


def summary():
    return json.loads(Path("hshap-output/summary.json").read_text())


def test_the_command_takes_templates(work):
    """One for each image by its name, or one for all, which is no template of the others."""
    done = work("--template", "templates")
    assert done.exit_code == 0, done.stderr
    assert "the baseline shows the same scene but for a few places" in done.stderr
    for number in range(2):
        found = hshap.Explanation.load(f"hshap-output/{number}.npz")
        assert found.settings["partition"]["type"] == "Spots"
        assert sorted(box.start[0] // 10 for box in found.boxes()) in ([0, 3], [0, 4], [1, 4])
    assert len({one["template_sha256"] for one in summary()["images"]}) == 2
    done = work("--baseline", "templates/0.png", "--force")
    assert done.exit_code == 0, done.stderr
    kinds = [
        hshap.Explanation.load(f"hshap-output/{number}.npz").settings["partition"]["type"]
        for number in range(2)
    ]
    assert kinds[0] == "Spots" != kinds[1]


def test_a_changed_template_is_explained_again(work):
    assert work("--template", "templates").exit_code == 0
    before = {path: Path(path).stat().st_mtime_ns for path in ("hshap-output/0.npz",)}
    again = work("--template", "templates")
    assert again.exit_code == 0, again.stderr
    assert summary()["evaluations"] == 0
    Path("templates/1.bmp").unlink()
    Path("images/0.png").rename("kept.png")
    Path("kept.png").rename("images/0.png")
    with Image.open("templates/0.png") as old:
        Image.fromarray(np.asarray(old)).save("templates/1.png")
    again = work("--template", "templates")
    assert again.exit_code == 0, again.stderr
    assert summary()["evaluations"] > 0
    assert before == {path: Path(path).stat().st_mtime_ns for path in before}


def test_mistakes_with_templates_are_told(work):
    both = work("--template", "templates", "--baseline", "blur")
    assert both.exit_code == 2
    assert "--template and --baseline exclude each other" in both.stderr
    no_folder = work("--template", "images/0.png")
    assert no_folder.exit_code == 2
    assert "is not a folder" in no_folder.stderr
    Path("templates/1.bmp").unlink()
    missing = work("--template", "templates")
    assert missing.exit_code == 7
    assert "images/1.png has no template in templates" in missing.stderr
    Image.fromarray(np.zeros((5, 6), np.uint8)).save("templates/1.png")
    small = work("--template", "templates")
    assert small.exit_code == 7
    assert "is 5 x 6 (height x width), but its image 1.png is 64 x 80" in small.stderr
    inside = work("--template", "templates", "--out", "templates")
    assert inside.exit_code == 5
