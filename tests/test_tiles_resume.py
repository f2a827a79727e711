"""`hshap tiles` that is stopped or killed goes on, and its result is that of an undisturbed run."""

from __future__ import annotations

import importlib
import itertools
import json
import os
import shutil
import time
from pathlib import Path

import commands
import numpy as np
import pytest

from hshap.large import TiledExplanation

MODELS = """
import os, signal

calls, dies = [], {}

class Killed(BaseException):
    pass

def red(tiles):
    calls.append(tiles.tobytes())
    if len(calls) == dies.get("at", int(os.environ.get("DIE_AT", 0))):
        if "DIE_AT" in os.environ:
            os.kill(os.getpid(), signal.SIGKILL)
        raise Killed
    score = tiles[:, :1] - tiles[:, 1:].max(axis=1, keepdims=True)
    # The last digits depend on the batch, as they do in a network.
    return score.max(axis=(2, 3)) * (1 + 1e-7 * len(tiles))
"""
WORDS = ("--target", 0, "--side", 16, "--min-size", 8, "--partition", "bisection")


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A folder with an image of 48 tiles, in many of them a red square, and a module of a model."""
    rng = np.random.default_rng(1)
    pixels = rng.integers(100, 120, (3, 96, 128)).astype(np.uint8)
    for y, x in zip(rng.integers(0, 93, 50), rng.integers(0, 125, 50), strict=True):
        pixels[:, y : y + 3, x : x + 3] = np.array([200, 30, 30], np.uint8).reshape(3, 1, 1)
    np.save(tmp_path / "slide.npy", pixels)
    # Scores are kept every ten seconds: here, time flies.
    seconds = itertools.count(0, 7)
    monkeypatch.setattr(time, "monotonic", lambda: float(next(seconds)))
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(seconds)))
    with commands.folder_of_user(tmp_path, monkeypatch, MODELS) as name:
        yield name


def tiles(model, out, *words, die_at=None, baseline="constant:0.5,0.5,0.5"):
    """Run the command, which may die at a call of the model; return its outcome and the calls."""
    module = importlib.import_module(model)
    module.calls.clear()
    module.dies.clear()
    options = ("--model", f"{model}:red", *WORDS, "--baseline", baseline, "--out", out, *words)
    if die_at is None:
        done = commands.run("tiles", "slide.npy", *options)
        return done, len(module.calls)
    module.dies["at"] = die_at
    with pytest.raises(module.Killed):
        commands.run("tiles", "slide.npy", *options)
    return None, die_at


def facts(out):
    """Everything that must be the same, in bits."""
    one = TiledExplanation.load(f"{out}/slide-0.npz")
    return [
        *(one.scores.tobytes(), one.skipped.tobytes(), one.thumbnail.tobytes()),
        *(one.evaluations, one.boxes()),
        *((inner.position, inner.placement, inner.leaves) for inner in one.inside),
        *(game.values.tobytes() for inner in one.inside for game in inner.games),
        *(game.coefficients.tobytes() for inner in one.inside for game in inner.games),
    ]


WHOLE = {}


def whole(model, baseline="constant:0.5,0.5,0.5"):
    """Return the facts, the files and the calls of an undisturbed run, which is made once."""
    if baseline not in WHOLE:
        done, every = tiles(model, "whole", baseline=baseline)
        assert done.exit_code == 0, done.output
        WHOLE[baseline] = facts("whole"), commands.names("whole"), every
    return WHOLE[baseline]


@pytest.mark.parametrize(
    "baseline", ["constant:0.5,0.5,0.5", pytest.param("blur", marks=pytest.mark.exhaustive)]
)
def test_a_killed_command_goes_on(model, baseline):
    expected, files, every = whole(model, baseline)
    assert ".hshap-run" not in files
    for share in (0.6, 0.9):
        out, death = f"out-{share}", int(every * share)
        tiles(model, out, die_at=death, baseline=baseline)
        assert commands.names(out) == [".hshap-run"]
        done, again = tiles(model, out, baseline=baseline)
        assert done.exit_code == 0, done.output
        assert facts(out) == expected
        assert commands.names(out) == files
        # Probes of the model are made in every call; of the batches, those that are missing.
        assert again < every - 0.3 * death + 10


def test_a_command_that_dies_again_and_again_gets_there(model):
    expected, _, every = whole(model)
    for share, words in ((0.6, ()), (0.1, ()), (0.2, ())):
        tiles(model, "out", *words, die_at=int(every * share))
    done, _ = tiles(model, "out")
    assert done.exit_code == 0, done.output
    assert facts("out") == expected


@pytest.mark.parametrize("damage", ["truncated", "empty", "missing", "other"])
def test_a_damaged_part_is_computed_again(model, damage):
    expected, _, every = whole(model)
    tiles(model, "out", die_at=int(every * 0.9))
    parts = sorted(Path("out/.hshap-run/unfinished").rglob("*.npz"))
    assert len(parts) >= 4
    for part, other in ((parts[0], parts[1]), (parts[-1], parts[-2])):
        data = part.read_bytes()
        if damage == "missing":
            part.unlink()
        elif damage == "other":
            shutil.copy(other, part)
        else:
            part.write_bytes(data[: len(data) // 2] if damage == "truncated" else b"")
    done, _ = tiles(model, "out")
    assert done.exit_code == 0, done.output
    assert facts("out") == expected


def test_a_run_takes_nothing_that_is_not_its_own(model):
    _, every = tiles(model, "whole")
    other, _ = tiles(model, "whole", "--overlap", "4")
    commands.refused(other, 2, "made with another tiles.overlap (0 there, 4 here)")
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("mine")
    commands.refused(tiles(model, "mine")[0], 5, "has files that hshap did not write")
    assert commands.names("mine") == ["notes.txt"]
    done, again = tiles(model, "whole", "--json")  # all is there
    assert json.loads(done.stdout)["images"][0]["explanations"][0]["findings"]
    assert again < 0.5 * every


@pytest.mark.kills
@pytest.mark.skipif(os.name != "posix", reason="a process is killed by a signal")
def test_a_process_that_is_killed_goes_on(model):
    expected, _, every = whole(model)
    words = ("tiles", "slide.npy", "--model", f"{model}:red", *WORDS)
    words = (*words, "--baseline", "constant:0.5,0.5,0.5", "--out", "out")
    assert commands.real(*words, DIE_AT=str(every * 3 // 4)).returncode == -9
    assert commands.real(*words, DIE_AT="4").returncode == -9  # and once more
    done = commands.real(*words)
    assert done.returncode == 0, done.stderr
    assert facts("out") == expected
