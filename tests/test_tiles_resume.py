"""`hshap tiles` that is stopped or killed goes on, and its result is that of an undisturbed run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hshap import Bisection, Constant, DepthFirst, Explainer, TiledExplanation, Tiles
from hshap.explainer.tile_parts import GROUP, Parts
from hshap.explainer.tile_scores import score_tiles
from hshap.explainer.tiling import explain_scored
from hshap.formats.large.opening import open_image

SIDE = 16
TILES = Tiles(SIDE, background=0.0)


class KilledError(BaseException):
    """A kill, as far as the library is concerned."""


class Model:
    """Scores tiles; the last digits depend on the batch, as they do in a network."""

    def __init__(self, dies_at=None):
        self.dies_at, self.batches = dies_at, []

    def __call__(self, tiles):
        if len(self.batches) == self.dies_at:
            raise KilledError
        self.batches.append(tiles.tobytes())
        score = tiles.max(axis=(1, 2, 3)) + 0.1 * tiles.mean(axis=(1, 2, 3))
        return np.stack([score, -score], axis=1) * (1 + 1e-12 * len(tiles))


@pytest.fixture(scope="module")
def image():
    """An image of 100 tiles: spots in a quarter of them, and flat ones."""
    rng = np.random.default_rng(0)
    pixels = (0.01 * rng.random((1, 155, 160))).astype(np.float32)
    pixels[:, :32] = 0
    for y, x in zip(rng.integers(32, 152, 30), rng.integers(0, 157, 30), strict=True):
        pixels[0, y : y + 3, x : x + 3] = rng.uniform(0.5, 1)
    return pixels


def explained(image, model, parts, baseline=None):
    explainer = Explainer(
        model, baseline or Constant(0.0), Bisection(min_size=4), DepthFirst(max_evaluations=30)
    )
    scored = score_tiles(explainer, open_image(image), TILES, None, parts)
    return [
        explain_scored(explainer, scored, target, None, parts and parts.found_tiles(target))
        for target in (0, 1)
    ]


def facts(found):
    """Everything that must be the same, in bits."""
    return [
        [
            one.scores.tobytes(),
            one.skipped.tobytes(),
            one.thumbnail.tobytes(),
            one.evaluations,
            one.boxes(),
            *(
                (inner.position, inner.placement, inner.target, inner.leaves, inner.evaluations)
                for inner in one.inside
            ),
            *(game.values.tobytes() for inner in one.inside for game in inner.games),
            *(game.coefficients.tobytes() for inner in one.inside for game in inner.games),
        ]
        for one in found
    ]


def own_colours(pixels):
    """A baseline that looks at the tile: hidden tiles are scored, too."""
    from hshap.baselines.protocol import Still

    return Still(np.broadcast_to(pixels.min(axis=(1, 2), keepdims=True), (1, *pixels.shape)))


@pytest.mark.parametrize("baseline", [None, own_colours], ids=["constant", "own"])
def test_a_killed_call_goes_on_with_the_same_batches(image, tmp_path, baseline):
    whole = Model()
    expected = facts(explained(image, whole, None, baseline))
    assert len(explained(image, Model(), None, baseline)[0].inside) > GROUP
    for death in range(0, len(whole.batches), 13):
        parts = Parts(tmp_path / str(death), every=0.0)
        with pytest.raises(KilledError):
            explained(image, Model(death), parts, baseline)
        again = Model()
        assert facts(explained(image, again, parts, baseline)) == expected
        # The check of batches is made in every call; all other batches are those that are missing.
        assert len(again.batches) <= len(whole.batches) - death + GROUP * 4 + 3
        third = Model()
        assert facts(explained(image, third, parts, baseline)) == expected
        assert third.batches == []


def test_a_call_that_dies_again_and_again_gets_there(image, tmp_path):
    expected = facts(explained(image, Model(), None))
    parts, deaths = Parts(tmp_path, every=0.0), 0
    while True:
        try:
            found = explained(image, Model(dies_at=25), parts)
        except KilledError:
            deaths += 1
        else:
            break
    assert deaths > 1
    assert facts(found) == expected


@pytest.mark.parametrize("damage", ["truncated", "empty", "missing", "other"])
def test_a_damaged_part_is_computed_again(image, tmp_path, damage):
    parts = Parts(tmp_path, every=0.0)
    expected = facts(explained(image, Model(), parts))
    for name in ("scores-000001", "inside-000-000000"):
        path = tmp_path / f"{name}.npz"
        data = path.read_bytes()
        if damage == "missing":
            path.unlink()
        elif damage == "other":
            path.write_bytes((tmp_path / name.replace("1", "2")).with_suffix(".npz").read_bytes())
            if name.startswith("inside"):
                path.write_bytes((tmp_path / "inside-000-000001.npz").read_bytes())
        else:
            path.write_bytes(data[: len(data) // 2] if damage == "truncated" else b"")
        again = Model()
        assert facts(explained(image, again, parts)) == expected
        assert again.batches


# The command

MODELS = """
import os, signal
from pathlib import Path

def red(tiles):
    count = Path("calls")
    done = int(count.read_text()) + 1 if count.exists() else 1
    count.write_text(str(done))
    if done == int(os.environ.get("DIE_AT", 0)):
        os.kill(os.getpid(), signal.SIGKILL)
    score = tiles[:, :1] - tiles[:, 1:].max(axis=1, keepdims=True)
    return score.max(axis=(2, 3)) * (1 + 1e-7 * len(tiles))
"""
WORDS = ("--model", "models:red", "--target", "0", "--side", "32", "--min-size", "4")
WORDS = (*WORDS, "--partition", "bisection", "--baseline", "constant:0.5,0.5,0.5")


@pytest.fixture
def work(tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    pixels = rng.integers(100, 120, (3, 256, 384)).astype(np.uint8)
    for y, x in zip(rng.integers(0, 250, 80), rng.integers(0, 378, 80), strict=True):
        pixels[:, y : y + 6, x : x + 6] = np.array([200, 30, 30], np.uint8).reshape(3, 1, 1)
    np.save(tmp_path / "slide.npy", pixels)
    (tmp_path / "models.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tiles(out, *words, die_at=0):
    Path("calls").unlink(missing_ok=True)
    path = os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(  # noqa: S603
        [sys.executable, "-m", "hshap", "tiles", "slide.npy", *WORDS, "--out", out, *words],
        env={**os.environ, "DIE_AT": str(die_at), "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def calls():
    return int(Path("calls").read_text()) if Path("calls").exists() else 0


@pytest.mark.skipif(os.name != "posix", reason="a process is killed by a signal")
def test_a_killed_command_goes_on(work):
    pytest.importorskip("typer")
    done = tiles("whole")
    assert done.returncode == 0, done.stderr
    every = calls()
    expected = facts([TiledExplanation.load("whole/slide-0.npz")])
    assert not Path("whole/unfinished").exists()
    killed = tiles("out", die_at=every * 3 // 4)
    assert killed.returncode == -9
    assert {path.name for path in Path("out").iterdir()} >= {"unfinished"}
    refused = tiles("out")
    assert refused.returncode == 5
    assert "pass --resume to go on" in refused.stderr
    other = tiles("out", "--resume", "--overlap", "4")
    assert other.returncode == 2
    assert "made with another tiles; pass the same options" in other.stderr
    assert tiles("out", "--resume", die_at=2).returncode == -9  # and once more
    done = tiles("out", "--resume")
    assert done.returncode == 0, done.stderr
    assert calls() < every * 0.6
    assert facts([TiledExplanation.load("out/slide-0.npz")]) == expected
    assert sorted(path.name for path in Path("out").iterdir()) == sorted(
        path.name for path in Path("whole").iterdir()
    )
    done = tiles("out", "--resume", "--json")  # all is there
    assert done.returncode == 0
    assert calls() < 10  # the probes of the model
    assert json.loads(done.stdout)["images"][0]["explanations"][0]["findings"]
    assert facts([TiledExplanation.load("out/slide-0.npz")]) == expected


def test_resume_takes_nothing_that_is_not_its_own(work):
    pytest.importorskip("typer")
    Path("out").mkdir()
    Path("out/notes.txt").write_text("mine")
    done = tiles("out", "--resume")
    assert done.returncode == 5
    assert "no results to resume" in done.stderr
    assert sorted(path.name for path in Path("out").iterdir()) == ["notes.txt"]
    assert tiles("other", "--resume", "--force").returncode == 2
