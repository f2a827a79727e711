"""Pages and exports of a command are of the original file: its size, depth and pixel size."""

from __future__ import annotations

import csv
import json
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from opened import opened, run
from pages import ReadPage
from shapes import TOOLS, in_geojson

Image = pytest.importorskip("PIL.Image")
tifffile = pytest.importorskip("tifffile")
for module in ("typer", "rich", "matplotlib"):
    pytest.importorskip(module)

from PIL import PngImagePlugin

import hshap

pytestmark = pytest.mark.usefixtures("blank_pictures")

RANDOM = np.random.default_rng(7)
GREY = RANDOM.integers(0, 256, (20, 30), dtype=np.uint8)
COLOUR = RANDOM.integers(0, 256, (20, 30, 3), dtype=np.uint8)
OME = (
    '<?xml version="1.0"?><OME xmlns="x"><Image ID="1"><Pixels ID="1" {} SizeX="30"/></Image></OME>'
)
IN_MM = 'PhysicalSizeX="0.2" PhysicalSizeXUnit="mm" PhysicalSizeY="0.1" PhysicalSizeYUnit="mm"'
MODEL = (
    "import numpy as np\n"
    "def model(batch):\n"
    "    return np.stack([batch.max(axis=(1, 2, 3)), batch.mean(axis=(1, 2, 3))], 1)\n"
)


# The size of a pixel


def imagej(unit):
    return {"description": f"ImageJ=1.53\nunit={unit}\n".encode("latin-1")}


DOTS = {"resolution": (508, 508)}
TIFFS = {  # options of tifffile, and sides of a pixel in a unit
    "inches": ({**DOTS, "resolutionunit": "INCH"}, None),
    "centimetres": ({"resolution": (40000, 20000), "resolutionunit": 3}, None),
    "no unit": ({**DOTS, "resolutionunit": "NONE"}, None),
    "nothing": ({}, None),
    "zero": ({"resolution": ((0, 1), (0, 1)), "resolutionunit": "INCH"}, None),
    "OME": (
        {"description": OME.format('PhysicalSizeX="0.25" PhysicalSizeY="0.5"')}, (0.5, 0.25, "µm"),
    ),
    "OME, unit": ({"description": OME.format(IN_MM)}, (0.1, 0.2, "mm")),
    "OME, pixels": (
        {"description": OME.format('PhysicalSizeX="1" PhysicalSizeXUnit="pixel"')}, None,
    ),
    "OME without sizes": ({"description": OME.format('Type="uint8"'), **DOTS}, None),
    "ImageJ": (
        {"resolution": (4, 2), "resolutionunit": "NONE", **imagej("micron")}, (0.5, 0.25, "µm"),
    ),
    "ImageJ, Latin-1": (
        {"resolution": (4, 2), "resolutionunit": "NONE", **imagej("µm")}, (0.5, 0.25, "µm"),
    ),
    "ImageJ, pixels": ({"resolution": (4, 4), **imagej("pixel")}, None),
    # It writes so for any picture with a density that it opened.
    "ImageJ, a print": ({"resolution": (300, 300), **imagej("inch")}, None),
}  # fmt: skip


def test_tiffs_tell_their_pixel_size(tmp_path):
    for name, (options, _) in TIFFS.items():
        tifffile.imwrite(tmp_path / f"{name}.tif", GREY, metadata=None, **options)
    done = opened(tmp_path)
    for name, (_, expected) in TIFFS.items():
        table = done.images[f"{name}.tif"].table
        if expected is None:
            assert table["pixelSize"] is None, name
        else:
            assert table["pixelSize"] == pytest.approx(expected[:2]), name
            assert table["unit"] == expected[2], name
    metadata = {"axes": "ZYX", "PhysicalSizeX": 0.5, "PhysicalSizeY": 0.5}
    path = tmp_path / "stack.ome.tif"
    tifffile.imwrite(path, np.stack([GREY] * 3), ome=True, metadata=metadata)
    done = opened(path, "--frame", 2)  # OME tells it for every page
    assert done.images["stack.ome.tif"].table["pixelSize"] == [0.5, 0.5]
    assert "stack.ome.tif: pixels of 0.5 µm, as the file says" in done.told
    done = opened(path, "--frame", 2, "--pixel-size", 3, "--unit", "km")
    table = done.images["stack.ome.tif"].table
    assert (table["pixelSize"], table["unit"]) == ([3, 3], "km")
    assert "pixels of" not in done.told


def test_a_density_is_not_a_pixel_size(tmp_path):
    picture = Image.fromarray(COLOUR)
    for dots in (1, 96, 300, 25400):
        exif = Image.Exif()
        exif[282] = exif[283] = float(dots)
        exif[296] = 2
        exif.get_ifd(0x8769)[33434] = 0.01  # an exposure time
        for suffix in ("jpg", "png", "bmp", "tif", "webp"):
            picture.save(tmp_path / f"plain{dots}.{suffix}", dpi=(dots, dots))
            if suffix != "bmp":
                picture.save(tmp_path / f"exif{dots}.{suffix}", exif=exif)
        for unit in ("INCH", "CENTIMETER"):
            path = tmp_path / f"{unit}{dots}.tif"
            options = {"tile": (16, 16), "photometric": "rgb", "resolutionunit": unit}
            tifffile.imwrite(path, COLOUR, resolution=(dots, dots), **options)
            with closing(hshap.large.open_image(path)) as large:
                assert large.pixel_size is None
            scan = hshap.images.read_image(path)
            assert (scan.spacing, scan.affine) == (None, None)
    info = PngImagePlugin.PngInfo()
    info.add(b"pHYs", (300).to_bytes(4, "big") * 2 + b"\0")  # a ratio, without a unit
    picture.save(tmp_path / "ratio.png", pnginfo=info)
    done = opened(tmp_path)
    assert len(done.images) == 4 * 11 + 1
    assert {name for name, read in done.images.items() if read.table["pixelSize"]} == set()
    assert "pixels of" not in done.told
    hshap.demo.example().placed((20, 30)).save(tmp_path / "a.npz")
    words = ("--format", "nifti", "--scan", tmp_path / "plain300.jpg", "-o", tmp_path / "a.nii")
    assert run("export", tmp_path / "a.npz", *words).exit_code != 0
    assert not (tmp_path / "a.nii").exists()


@pytest.mark.parametrize("kind", ["tif", "jpg", "png"])
def test_damaged_tags_leave_the_pixel_size_out(tmp_path, kind):
    path = tmp_path / f"whole.{kind}"
    exif = Image.Exif()
    exif[270] = OME.format('PhysicalSizeX="0.25" PhysicalSizeY="0.5"')
    Image.fromarray(COLOUR).save(path, dpi=(300, 300), exif=exif)
    data = path.read_bytes()
    for place in range(0, min(len(data), 400), 5):
        changed = data[:place] + b"\xff" + data[place + 1 :]
        (tmp_path / f"{place}.{kind}").write_bytes(changed)
    done = opened(tmp_path, "--max-pixels", 10_000, code=7)
    assert done.skipped
    for read in done.images.values():
        assert all(side > 0 for side in read.table["pixelSize"] or ())


# The page of a command


@pytest.fixture(scope="module")
def clinic(tmp_path_factory):
    """A folder of a 16-bit scan of 600 x 900 pixels and an X-ray in colours, explained at 60 x 90.

    Its explanations are `bright`, of another target `mean`, and at another size `small`.
    """
    folder = tmp_path_factory.mktemp("clinic")
    (folder / "images").mkdir()
    scan = RANDOM.integers(500, 1500, (600, 900), dtype=np.uint16)
    scan[200:300, 400:600] = 60000
    size = OME.format(
        'PhysicalSizeX="50" PhysicalSizeY="50" PhysicalSizeXUnit="µm" PhysicalSizeYUnit="µm"'
    )
    tifffile.imwrite(folder / "images" / "scan.tif", scan, description=size.encode(), metadata=None)
    Image.fromarray(np.repeat((scan >> 8).astype(np.uint8)[..., None], 3, axis=2)).save(
        folder / "images" / "xray.png"
    )
    (folder / "bright.py").write_text(MODEL)
    (folder / "hshap.toml").write_text('size = [60, 90]\nchannels = "grey"\n')
    common = ("--model", "bright:model", "--config", "hshap.toml", "--resize", "--min-size", 10)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        for out, images, target, *size in (
            ("bright", "images", 0, "--tolerance", 0.1),
            ("mean", "images/scan.tif", 1),
            ("small", "images/scan.tif", 0, "--size", "40x30"),
        ):
            words = ("--partition", "quadtree", "--target", target, "--out", out, *size)
            done = run("explain", images, *common, *words)
            assert done.exit_code == 0, done.output
    return folder, scan


def test_the_page_shows_files_as_they_are(clinic):
    folder, scan = clinic
    read = ReadPage(folder / "bright" / "index.html")
    for name, bits, values, pixel_size in (
        ("scan.tif", 16, scan, [0.05, 0.05]),
        ("xray.png", 8, scan >> 8, None),  # grey, so with a window
    ):
        number = read.by_name(name)
        table = read.table(number)
        assert (table["classes"][0]["grid"], table["size"]) == ([60, 90], [600, 900])
        assert table["place"]["shape"] == [600, 900]
        assert (table["image"]["kind"], table["image"]["bits"]) == ("grey", bits)
        assert np.array_equal(read.pixels(number), values)
        assert table["pixelSize"] == pixel_size
    assert read.table(read.by_name("scan.tif"))["unit"] == "mm"


@pytest.mark.parametrize(
    ("files", "names", "has_image"),
    [
        (("bright/scan.npz", "mean/scan.npz", "images/scan.tif"), ["0", "1"], True),
        (("bright/scan.npz", "small/scan.npz"), ["0 (bright)", "0 (small)"], False),
        (
            ("bright/scan.npz", "small/scan.npz", "images/scan.tif"),
            ["0 (bright)", "0 (small)"],
            True,
        ),
        (("bright/scan.npz", "coarse.npz"), ["0 (scan)", "0 (coarse)"], False),
    ],
    ids=["two classes", "two sizes on grey", "two sizes", "one class"],
)
def test_view_shows_explanations_side_by_side(clinic, monkeypatch, files, names, has_image):
    folder, scan = clinic
    monkeypatch.chdir(folder)
    hshap.Explanation.load("bright/scan.npz").at(min_size=20).save("coarse.npz")
    done = run("view", *files, "--out", "view.html", "--force")
    assert done.exit_code == 0, done.output
    read = ReadPage(folder / "view.html")
    table = read.table()
    assert [one["name"] for one in table["classes"]] == names
    if has_image:
        assert table["size"] == [600, 900]
        assert table["pixelSize"] == [0.05, 0.05]
        assert np.array_equal(read.pixels(), scan)
    if "small/scan.npz" in files:
        one, other = (made["grid"] for made in table["classes"])
        assert one != other


def test_view_writes_a_folder_for_large_images(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    noise = RANDOM.integers(0, 256, (3000, 3000, 3), dtype=np.uint8)
    tifffile.imwrite("large.tif", noise, photometric="rgb")
    hshap.demo.example().placed((3000, 3000)).save("large.npz")
    (tmp_path / "large_files").mkdir()
    (tmp_path / "large_files" / "thesis.txt").write_text("mine")
    refused = run("view", "large.npz", "large.tif")
    assert refused.exit_code == 5
    assert "large_files exists already; move it away" in refused.stderr
    assert (tmp_path / "large_files" / "thesis.txt").read_text() == "mine"
    assert not (tmp_path / "large.html").exists()
    (tmp_path / "large_files").rename("thesis")
    assert run("view", "large.npz", "large.tif").exit_code == 0
    read = ReadPage(tmp_path / "large.html")
    assert read.index["folder"] == "large_files"
    assert f"{read.home()}/2-0-0" in read.parts
    again = run("view", "large.npz", "large.tif")
    assert again.exit_code == 5
    assert "exists already" in again.stderr
    assert run("view", "large.npz", "--force").exit_code == 0  # on grey: one file is enough
    assert not (tmp_path / "large_files").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("a.npz", "a.png", "b.png"), "a.png and b.png are two images"),
        (("a.npz", "a.npz"), "a.npz is named twice"),
    ],
)
def test_view_refuses_what_is_given_twice(words, told):
    done = run("view", *words)
    assert done.exit_code == 2
    assert told in done.stderr


# Exports of turned photographs


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder, of which Python imports."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def in_csv(path, grid):
    out = np.zeros(grid, bool)
    for row in csv.DictReader(path.read_text().splitlines()):
        if row["leaf"] == "True":
            ends = (int(row[f"{axis}_{end}"]) for axis in "yx" for end in ("start", "stop"))
            top, bottom, left, right = ends
            out[top:bottom, left:right] = True
    return out


def found_in(kind, path, grid):
    """Return the pixels of the findings in a file."""
    if kind == "csv":
        return in_csv(path, grid)
    if kind in {"png", "tiff"}:
        return np.asarray(Image.open(path)).astype(float) > 0
    text = path.read_text()
    read = in_geojson if kind == "geojson" else TOOLS[kind]
    return read(text if kind == "cvat" else json.loads(text), grid)[1]


KINDS = ("coco", "geojson", "png", "tiff", "cvat", "label-studio")


@pytest.mark.parametrize(
    ("command", "orientation", "kinds"),
    [
        ("explain", 1, KINDS),
        ("explain", 6, KINDS),
        ("run", 7, KINDS),
        pytest.param("explain", 2, ("csv",), marks=pytest.mark.frameworks),  # pandas writes it
    ],
)
def test_exports_of_turned_photographs_are_upright(here, command, orientation, kinds):
    (here / "fishes.py").write_text("def model(batch):\n    return batch.max(axis=(1, 2, 3))\n")
    upright = np.full((32, 64, 3), 10, np.uint8)
    upright[4:8, 40:48] = 250
    turned = {
        1: upright,
        2: upright[:, ::-1],
        6: upright.swapaxes(0, 1)[::-1],
        7: upright[::-1, ::-1].swapaxes(0, 1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    Path("in").mkdir()
    Image.fromarray(np.ascontiguousarray(turned)).save("in/a.png", exif=exif)
    words = ("--baseline", "constant:0.04", "--partition", "quadtree", "--min-size", 4)
    done = run(command, "in", "--model", "fishes:model", "--out", "found", "--target", 0, *words)
    assert done.exit_code == 0, done.output
    note = f"the EXIF orientation {orientation} of the file is applied"
    for kind in kinds:
        done = run("export", "found", "--format", kind, "-o", f"a.{kind}")
        assert done.exit_code == 0, done.output
        assert (note in done.stderr) == (orientation > 1), done.stderr
        path = Path(f"a.{kind}")
        path = next(path.iterdir()) if path.is_dir() else path
        assert np.array_equal(found_in(kind, path, (32, 64)), (upright > 20).any(axis=2)), kind
        if kind in {"coco", "geojson"}:
            assert (note in path.read_text()) == (orientation > 1)
    # Formats with geometry have the pixels of the file, so they are refused.
    placed = run("export", "found", "--format", "ome-tiff", "-o", "a.ome.tif", "--scan", "in/a.png")
    assert (placed.exit_code != 0) == (orientation > 1)
    assert ("EXIF orientation" in placed.stderr) == (orientation > 1)


@pytest.mark.parametrize("command", ["explain", "run"])
@pytest.mark.parametrize("fit", ["crop", "letterbox", "stretch"])
def test_findings_of_fitted_images_are_in_pixels_of_the_file(here, command, fit):
    text = "def model(batch):\n    return (batch > 0.6).mean(axis=(1, 2, 3))\n"
    (here / "fishes.py").write_text(text)
    pixels = np.full((32, 64, 3), 10, np.uint8)
    pixels[16:24, 24:32] = 250
    Path("in").mkdir()
    Image.fromarray(pixels).save("in/a.png")
    how = ("--size", "16x16", "--fit", fit, "--baseline", "constant:0.04", "--tolerance", "0")
    words = (*how, "--partition", "quadtree", "--min-size", 1, "--all", "--target", 0)
    done = run(command, "in", "--model", "fishes:model", *words, "--out", "found")
    assert done.exit_code == 0, done.output
    assert ("the middle alone" in done.stderr) == (fit == "crop" and command == "explain")
    done = run("export", "found", "--format", "png", "-o", "a.png")
    found = found_in("png", Path("a.png"), (32, 64))
    assert found.shape == (32, 64)
    assert found[20, 28]
    around = np.zeros_like(found)
    around[12:28, 20:36] = True
    assert not (found & ~around).any()
