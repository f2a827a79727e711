"""The table of docs/formats.md is that of the round trips, and each of them keeps the place."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

for library in (
    "pydicom",
    "nibabel",
    "highdicom",
    "zarr",
    "tifffile",
    "openslide",
    "shapely",
    "PIL",
):
    pytest.importorskip(library)

ROOT = Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("formats_script", ROOT / "scripts" / "formats.py")
formats = importlib.util.module_from_spec(spec)
sys.modules["formats_script"] = formats
spec.loader.exec_module(formats)


@pytest.fixture(scope="module")
def measured():
    return formats.rows()


def without_version(cells):
    """Return the cells of a row; the library without its version, which may be another one here."""
    return [cells[0], cells[1].split()[0], *cells[2:]]


def test_every_round_trip_keeps_the_object_within_half_a_pixel(measured):
    for row in measured:
        assert row.distance < 0.5, row
        assert row.iou >= 0.9, row


def test_the_page_has_the_rows_of_the_round_trips(measured):
    text = formats.PAGE.read_text(encoding="utf-8")
    table = text.split(formats.START)[1].split(formats.END)[0].strip().splitlines()[2:]
    shown = [without_version([cell.strip() for cell in line.split("|")[1:-1]]) for line in table]
    fresh = [without_version(row.cells) for row in measured]
    # Tools of other environments may be missing here, but not on the page.
    assert all(row in shown for row in fresh)
    own = [
        row
        for row in shown
        if row[1] not in ("label-studio-sdk", "datumaro", "fiftyone", "ome-zarr")
    ]
    assert [row for row in fresh if row in own] == own
    assert len(shown) == 15
