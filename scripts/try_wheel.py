# ruff: noqa: INP001, S101, a script that fails where something is missing
"""Try an installed hshap: package data, one explanation, the command. Run by scripts/try-wheel.

Its one argument is `plain` if NumPy is the only other package, or `extras` if the extras torch,
plot, cli and trees are installed. Run it with `python -I` from another folder, so that it imports
the wheel and not the checkout.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import hshap

DATA = {
    "hshap": ["py.typed"],
    "hshap.demo": ["samples.npz", "weights.safetensors"],
    "hshap.export.page": ["assets/page.html", "assets/page.css", "assets/app.js"],
}


def main() -> None:
    """Try everything that should work with these packages; an assertion tells the first failure."""
    extras = sys.argv[1:] == ["extras"]
    assert Path(hshap.__file__).is_relative_to(sys.prefix), hshap.__file__
    assert version("hshap") == hshap.__version__
    package_data()
    explanation_with_numpy_alone()
    page_with_numpy_alone()
    if extras:
        bundled_network()
    else:
        assert find_spec("torch") is None
        assert find_spec("scipy") is None
        missing_extra_names_its_command()
    command(extras=extras)


def package_data() -> None:
    """Check that the files that are not Python are in the wheel, and not empty."""
    for package, names in DATA.items():
        for name in names:
            entry = files(package) / name
            assert entry.is_file(), f"{package} lacks {name}"
            assert entry.read_bytes() or name == "py.typed", f"{package}: {name} is empty"


def explanation_with_numpy_alone() -> None:
    """Find two bright pixels by both searches; save an explanation and load it."""
    image = np.zeros((1, 16, 16))
    image[0, 3, 4] = image[0, 12, 9] = 1.0
    for search in (hshap.DepthFirst(), hshap.BreadthFirst()):
        explainer = hshap.Explainer(
            lambda batch: batch.max(axis=(1, 2, 3)),
            baseline=hshap.Constant(0.0),
            partition=hshap.Dyadic(min_size=1),
            search=search,
        )
        found = explainer.explain(image, target=0)
        assert {box.start for box in found.leaves} == {(3, 4), (12, 9)}, found
    with tempfile.TemporaryDirectory() as folder:
        found.save(Path(folder) / "found.npz")
        again = hshap.Explanation.load(Path(folder) / "found.npz")
    assert np.array_equal(again.saliency(), found.saliency())


def page_with_numpy_alone() -> None:
    """Write the page of an explanation, with the scripts and the style of the package."""
    found = hshap.demo.example()
    image = np.zeros((1, 8, 8))
    with tempfile.TemporaryDirectory() as folder:
        view = hshap.export.page.View("image.png", image, {"bright": found})
        path = hshap.export.page.write_page(Path(folder) / "page.html", [view], title="wheel")
        assert path.stat().st_size > 20_000, path.stat().st_size


def missing_extra_names_its_command() -> None:
    """Check that a partition without its extra refuses with the command that installs it."""
    explainer = hshap.Explainer(
        lambda batch: batch.max(axis=(1, 2, 3)),
        baseline=hshap.Constant(0.0),
        partition=hshap.Superpixels(),
    )
    said = "nothing: Superpixels worked without higra"
    try:
        explainer.explain(np.ones((1, 8, 8)), target=0)
    except hshap.errors.MissingExtraError as error:
        said = str(error)
    assert "pip install higra scipy" in said, said


def bundled_network() -> None:
    """Explain the bundled image with the most crosses by the bundled torch network."""
    samples, network = hshap.demo.bundled(), hshap.demo.load()
    number = int(np.argmax(samples["crosses"]))
    explainer = hshap.Explainer(
        network,
        baseline=hshap.Fixed(samples["mean"]),
        partition=hshap.Superpixels(),
        search=hshap.DepthFirst(tolerance=0.02),
    )
    image = samples["images"][number].astype(np.float32) / np.float32(255)
    found = explainer.explain(image, target=hshap.Output(1, "softmax"))
    share = hshap.metrics.energy_pointing_game(found.saliency(), samples["truths"][number])
    assert share > 0.5, share


def command(*, extras: bool) -> None:
    """Run `hshap --help`: it lists the commands, or names the extra that is missing."""
    script = Path(sys.executable).with_name("hshap")
    shown = subprocess.run([script, "--help"], capture_output=True, text=True, check=False)  # noqa: S603
    if extras:
        assert shown.returncode == 0, shown.stderr
        assert all(name in shown.stdout for name in ("explain", "view", "doctor", "demo"))
    else:
        assert shown.returncode == 6, shown
        assert "needs typer: pip install" in shown.stderr, shown.stderr


if __name__ == "__main__":
    main()
