from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hshap

pytest.importorskip("torch")
pytest.importorskip("typer")
pytest.importorskip("matplotlib")
pytest.importorskip("higra")


from hshap.cli.runs.record import unchanged
from hshap.demo.run import file_names

DOCUMENTED = Path(__file__).parents[1] / "docs" / "images" / "demo.png"


def run(*words):
    return subprocess.run(  # noqa: S603
        [sys.executable, "-m", "hshap", *words], capture_output=True, text=True, check=False
    )


def test_the_demo_explains_prints_and_writes_pictures(tmp_path):
    done = run("demo", "--out", str(tmp_path / "pictures"))
    assert done.returncode == 0, done.stderr
    assert "evaluations" in done.stdout
    assert "demo.png" in done.stdout.replace("\n", "")
    assert (tmp_path / "pictures" / "demo.png").stat().st_size > 50_000
    for name in ("quadtree", "bisection", "superpixels"):
        found = hshap.Explanation.load(tmp_path / "pictures" / f"{name}-3.npz")
        assert found.leaves
        assert found.target == "probability_of_a_cross"
    # A second demo may replace these files, and no others.
    assert set(unchanged(tmp_path / "pictures")) == {"summary.json", *file_names()}


def test_the_picture_in_the_documentation_has_the_numbers_of_the_demo(tmp_path):
    images = pytest.importorskip("PIL.Image")
    done = run("demo", "--out", str(tmp_path))
    told = []
    for path in (DOCUMENTED, tmp_path / "demo.png"):
        with images.open(path) as picture:
            told.append(picture.text["Description"])
    assert told[0] == told[1], "copy the demo.png of hshap demo to docs/images"
    for number in re.findall(r"\d+", told[1]):
        assert number in done.stdout


def test_the_demo_finds_the_crosses():
    from hshap.demo import bundled
    from hshap.demo.run import PARTITIONS, _explain
    from hshap.metrics import f1

    samples = bundled()
    images = samples["images"].astype(np.float32) / np.float32(255)
    for name in PARTITIONS:
        for found, truth in zip(
            _explain(name, images, samples["mean"]), samples["truths"], strict=True
        ):
            assert f1(found.saliency(), truth) > (0.99 if name == "superpixels" else 0.3)
            assert found.score > 0.9
            assert found.baseline_score < 0.1


def test_a_folder_that_cannot_be_made_is_told_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    done = run("demo", "--out", str(tmp_path / "file" / "x"))
    assert done.returncode == 5
    assert "cannot be created as a folder" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_readme_s_example_runs_as_it_stands(tmp_path):
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "<Explanation: target 1" in done.stdout
    assert (tmp_path / "where.png").stat().st_size > 10_000


def test_the_version_is_told():
    assert run("version").stdout.strip() == hshap.__version__
