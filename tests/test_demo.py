"""`hshap demo`, the example of the README, and the picture in the documentation."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import hshap

for module in ("torch", "typer", "matplotlib", "higra"):
    pytest.importorskip(module)

from typer.testing import CliRunner

from hshap.cli.app import app
from hshap.demo import bundled

ROOT = Path(__file__).parents[1]


def run(*words):
    return subprocess.run(  # noqa: S603
        [sys.executable, *words], capture_output=True, text=True, check=False
    )


def test_the_demo_explains_prints_and_writes_pictures(tmp_path):
    images = pytest.importorskip("PIL.Image")
    out = tmp_path / "pictures"
    done = run("-m", "hshap", "demo", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "evaluations" in done.stdout
    assert "demo.png" in done.stdout.replace("\n", "")
    assert (out / "demo.png").stat().st_size > 50_000
    # The picture in the documentation has the numbers of the demo.
    told = []
    for path in (ROOT / "docs" / "images" / "demo.png", out / "demo.png"):
        with images.open(path) as picture:
            told.append(picture.text["Description"])
    assert told[0] == told[1], "copy the demo.png of hshap demo to docs/images"
    for number in re.findall(r"\d+", told[1]):
        assert number in done.stdout
    # The crosses are found, by each partition.
    truths = bundled()["truths"]
    for name, least in {"quadtree": 0.3, "bisection": 0.3, "superpixels": 0.99}.items():
        for number, truth in enumerate(truths):
            found = hshap.Explanation.load(out / f"{name}-{number}.npz")
            assert found.target == "probability_of_a_cross"
            assert hshap.metrics.f1(found.saliency(), truth) > least
            assert found.score - found.baseline_score > 0.8
    # A second demo may replace these files, and none that was changed.
    (out / "quadtree-0.npz").write_bytes(b"mine")
    (tmp_path / "file").write_text("")
    for place in (out, tmp_path / "file" / "x"):
        refused = CliRunner().invoke(app, ["demo", "--out", str(place)])
        assert refused.exit_code == 5
    assert "cannot be created as a folder" in refused.stderr
    assert (out / "quadtree-0.npz").read_bytes() == b"mine"


def test_the_readme_s_examples_run_as_they_stand(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    readme = (ROOT / "README.md").read_text()
    default, control = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    done = run("-c", f"{control}model = network\n{default}")
    assert done.returncode == 0, done.stderr
    assert "<Explanation: target 1" in done.stdout
    assert (tmp_path / "where.png").stat().st_size > 10_000
