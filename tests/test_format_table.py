"""Tables of the documentation are those that scripts make: formats keep the place, models agree."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

NEEDED = ("pydicom", "nibabel", "highdicom", "zarr", "tifffile", "openslide", "shapely", "PIL")
for library in NEEDED:
    pytest.importorskip(library)

pytestmark = pytest.mark.frameworks

ROOT = Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("formats_script", ROOT / "scripts" / "formats.py")
formats = importlib.util.module_from_spec(spec)
sys.modules["formats_script"] = formats
spec.loader.exec_module(formats)

OTHER_TOOLS = ("label-studio-sdk", "datumaro", "ome-zarr")
"""Libraries that need environments of their own, which may be missing here."""


def without_version(cells):
    return [cells[0], cells[1].split()[0], *cells[2:]]


def test_round_trips_keep_the_place_as_the_page_says():
    measured = formats.rows()
    assert not [row for row in measured if row.distance >= 0.5 or row.iou < 0.9]
    text = formats.PAGE.read_text(encoding="utf-8")
    table = text.split(formats.START)[1].split(formats.END)[0].strip().splitlines()[2:]
    shown = [without_version([cell.strip() for cell in line.split("|")[1:-1]]) for line in table]
    fresh = [without_version(row.cells) for row in measured]
    assert not [row for row in fresh if row not in shown]
    assert not [row for row in shown if row not in fresh and row[1] not in OTHER_TOOLS]


def test_the_page_of_models_has_every_checked_row():
    """The script runs the tests of models again, and compares the rows that they note."""
    command = [sys.executable, str(ROOT / "scripts" / "support_table.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stdout[-2000:]
