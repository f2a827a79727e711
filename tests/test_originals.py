"""The page of a command shows the original file: its size, its depth, and the size of its pixels.

Oracles are pillow, tifffile and imagecodecs, read without the code of the command line.
"""

from __future__ import annotations

import base64
import csv
import json
import re
import zlib
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image")
imagecodecs = pytest.importorskip("imagecodecs")
tifffile = pytest.importorskip("tifffile")
for module in ("typer", "rich", "matplotlib"):
    pytest.importorskip(module)

from PIL import ImageOps, PngImagePlugin
from typer.testing import CliRunner

import hshap
from hshap.cli.app import app
from hshap.cli.faults import Code, Refusal
from hshap.cli.inputs.formats import Format
from hshap.cli.inputs.images import Reader, read_original

RANDOM = np.random.default_rng(7)
GREY = RANDOM.integers(0, 256, (20, 30), dtype=np.uint8)
COLOUR = RANDOM.integers(0, 256, (20, 30, 3), dtype=np.uint8)
DEEP = RANDOM.integers(0, 2**16, (20, 30), dtype=np.uint16)


def original(path, **options):
    return read_original(path, Reader(Format(white=options.pop("white", None)), **options))


def laid(colour, alpha, behind):
    return colour * alpha + behind * (1 - alpha)


def test_grey_of_8_and_16_bits_is_as_it_is_stored(tmp_path):
    Image.fromarray(GREY).save(tmp_path / "a.png")
    Image.fromarray(DEEP).save(tmp_path / "b.png")
    tifffile.imwrite(tmp_path / "c.tif", DEEP)
    tifffile.imwrite(tmp_path / "d.tif", DEEP, byteorder=">")
    for name, values in {"a.png": GREY, "b.png": DEEP, "c.tif": DEEP, "d.tif": DEEP}.items():
        found = original(tmp_path / name).pixels
        assert found.dtype == values.dtype
        assert np.array_equal(found, values[None])


def test_numbers_beyond_16_bits_stay_numbers_and_have_their_window(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", DEEP.astype(np.float32) / 7)
    found = original(tmp_path / "a.tif", white=9000)
    assert np.array_equal(found.pixels, (DEEP.astype(np.float32) / 7)[None])
    assert found.window == (0, 9000)
    with pytest.raises(Refusal, match="--white"):
        original(tmp_path / "a.tif")


def test_grey_with_16_bits_and_transparency_lies_on_the_background(tmp_path):
    alpha = RANDOM.integers(0, 2**16, DEEP.shape, dtype=np.uint16)
    data = imagecodecs.png_encode(np.stack([DEEP, alpha], axis=-1))
    (tmp_path / "a.png").write_bytes(data)
    found = original(tmp_path / "a.png", background="#808080").pixels
    expected = laid(DEEP, alpha / 65535, 128 * 257)
    assert found.shape == (1, 20, 30)
    assert np.abs(found[0] - expected).max() < 0.01


def test_a_palette_with_transparency_lies_on_the_background(tmp_path):
    indexed = Image.fromarray(COLOUR).quantize(16)
    transparent = np.asarray(indexed) == 3
    indexed.save(tmp_path / "a.png", transparency=3)
    indexed.save(tmp_path / "a.gif", transparency=3)
    expected = np.where(transparent[..., None], (0, 0, 255), np.asarray(indexed.convert("RGB")))
    for name in ("a.png", "a.gif"):
        found = original(tmp_path / name, background="blue").pixels
        assert np.array_equal(np.moveaxis(found, 0, -1), expected), name


def test_grey_with_transparency_stays_grey_unless_the_background_has_a_colour(tmp_path):
    pair = np.stack([GREY, np.full_like(GREY, 128)], axis=-1)
    Image.fromarray(pair).save(tmp_path / "a.png")
    assert original(tmp_path / "a.png", background="white").pixels.shape == (1, 20, 30)
    assert original(tmp_path / "a.png", background="red").pixels.shape == (3, 20, 30)


def test_cmyk_is_shown_as_pillow_converts_it(tmp_path):
    Image.fromarray(COLOUR).convert("CMYK").save(tmp_path / "a.jpg", quality=95)
    Image.fromarray(COLOUR).convert("CMYK").save(tmp_path / "a.tif")
    for name in ("a.jpg", "a.tif"):
        expected = np.asarray(Image.open(tmp_path / name).convert("RGB"))
        found = original(tmp_path / name).pixels
        assert np.array_equal(np.moveaxis(found, 0, -1), expected), name


def test_16_bit_colour_is_rounded_to_bytes(tmp_path):
    deep = RANDOM.integers(0, 2**16, (20, 30, 3), dtype=np.uint16)
    tifffile.imwrite(tmp_path / "a.tif", deep, photometric="rgb")
    found = original(tmp_path / "a.tif").pixels
    assert np.array_equal(np.moveaxis(found, 0, -1), np.rint(deep / 257))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["png", "jpg", "tif", "webp"])
def test_every_orientation_is_upright_and_its_pixels_are_turned_with_it(
    tmp_path, suffix, orientation
):
    exif = Image.Exif()
    exif[0x0112] = orientation
    exif[270] = OME.format('PhysicalSizeX="0.25" PhysicalSizeY="0.5"')
    path = tmp_path / f"a.{suffix}"
    options = {"lossless": True} if suffix == "webp" else {"dpi": (254, 508)}
    Image.fromarray(COLOUR).save(path, exif=exif, **options)
    expected = np.asarray(ImageOps.exif_transpose(Image.open(path)))
    found = original(path)
    assert np.array_equal(np.moveaxis(found.pixels, 0, -1), expected)
    if suffix == "tif":
        assert found.pixel_size.sides == ((0.25, 0.5) if orientation >= 5 else (0.5, 0.25))
        assert found.pixel_size.unit == "µm"
    else:
        assert found.pixel_size is None


def test_a_page_of_several_is_the_one_that_is_asked_for(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", np.stack([DEEP, DEEP[::-1]]), photometric="minisblack")
    assert np.array_equal(original(tmp_path / "a.tif", frame=1).pixels[0], DEEP[::-1])
    frames = [Image.fromarray(one) for one in (GREY, GREY[::-1])]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    found = original(tmp_path / "a.gif", frame=1).pixels
    assert np.abs(found[0].astype(int) - GREY[::-1]).max() == 0
    with pytest.raises(Refusal, match="--frame"):
        original(tmp_path / "a.gif")


OME = (
    '<?xml version="1.0"?><OME xmlns="x"><Image ID="1"><Pixels ID="1" {} SizeX="30"/></Image></OME>'
)
TIFFS = {
    "inches": ({"resolution": (508, 508), "resolutionunit": "INCH"}, None, None),
    "centimetres": ({"resolution": (40000, 20000), "resolutionunit": 3}, None, None),
    "no unit": ({"resolution": (508, 508), "resolutionunit": "NONE"}, None, None),
    "nothing": ({}, None, None),
    "zero": ({"resolution": ((0, 1), (0, 1)), "resolutionunit": "INCH"}, None, None),
    "OME": (
        {"description": OME.format('PhysicalSizeX="0.25" PhysicalSizeY="0.5"')},
        (0.5, 0.25),
        "µm",
    ),
    "OME, unit": (
        {
            "description": OME.format(
                'PhysicalSizeX="0.2" PhysicalSizeXUnit="mm" PhysicalSizeY="0.1" '
                'PhysicalSizeYUnit="mm"'
            )
        },
        (0.1, 0.2),
        "mm",
    ),
    "OME, pixels": (
        {"description": OME.format('PhysicalSizeX="1" PhysicalSizeXUnit="pixel"')},
        None,
        None,
    ),
    "OME without sizes, and a density": (
        {"description": OME.format('Type="uint8"'), "resolution": (508, 508)},
        None,
        None,
    ),
    "ImageJ": (
        {
            "resolution": (4, 2),
            "resolutionunit": "NONE",
            "description": "ImageJ=1.53\nunit=micron\n",
        },
        (0.5, 0.25),
        "µm",
    ),
    "ImageJ, Latin-1": (
        {
            "resolution": (4, 2),
            "resolutionunit": "NONE",
            "description": "ImageJ=1.53\nunit=µm\n".encode("latin-1"),
        },
        (0.5, 0.25),
        "µm",
    ),
    "ImageJ, pixels": (
        {"resolution": (4, 4), "description": "ImageJ=1.53\nunit=pixel\n"}, None, None,
    ),
    "ImageJ, a print": (  # it writes so for any picture with a density that it opened
        {"resolution": (300, 300), "description": "ImageJ=1.53\nunit=inch\n"}, None, None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TIFFS)
def test_the_pixel_size_of_a_tiff_is_the_one_that_it_tells(tmp_path, name):
    options, sides, unit = TIFFS[name]
    tifffile.imwrite(tmp_path / "a.tif", GREY, metadata=None, **options)
    found = original(tmp_path / "a.tif").pixel_size
    if sides is None:
        assert found is None
    else:
        assert found.sides == pytest.approx(sides)
        assert found.unit == unit


def test_ome_tells_the_pixel_size_of_every_page(tmp_path):
    metadata = {"axes": "ZYX", "PhysicalSizeX": 0.5, "PhysicalSizeY": 0.5}
    stack = np.stack([GREY] * 3)
    tifffile.imwrite(tmp_path / "a.ome.tif", stack, ome=True, metadata=metadata)
    found = original(tmp_path / "a.ome.tif", frame=2)
    assert found.pixel_size.sides == (0.5, 0.5)
    assert found.pixel_size.unit == "µm"
    assert np.array_equal(found.pixels[0], GREY)


DENSITIES = (1, 72, 96, 150, 254, 300, 600, 1200, 25400)


@pytest.mark.parametrize("dots", DENSITIES)
def test_a_density_is_not_a_pixel_size(tmp_path, dots):
    picture = Image.fromarray(COLOUR)
    exif = Image.Exif()
    exif[282] = exif[283] = float(dots)
    exif[296] = 2
    for suffix in ("jpg", "png", "bmp", "tif", "webp"):
        picture.save(tmp_path / f"plain.{suffix}", dpi=(dots, dots))
        if suffix != "bmp":
            picture.save(tmp_path / f"exif.{suffix}", exif=exif)
    tiles = {"tile": (16, 16), "photometric": "rgb"}
    for unit in ("INCH", "CENTIMETER"):
        path = tmp_path / f"{unit}.tif"
        tifffile.imwrite(path, COLOUR, resolution=(dots, dots), resolutionunit=unit, **tiles)
        with closing(hshap.open_image(path)) as large:
            assert large.pixel_size is None
        scan = hshap.read_image(path)
        assert (scan.spacing, scan.affine) == (None, None)
    for path in sorted(tmp_path.iterdir()):
        assert original(path).pixel_size is None, path.name


def test_a_page_of_photographs_has_no_length(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("goldfish.py").write_text("def model(batch):\n    return batch.max(axis=(1, 2, 3))\n")
    Image.fromarray(COLOUR).save("a.jpg", dpi=(150, 150))
    words = ("--model", "goldfish:model", "--baseline", "constant:0", "--out", "found")
    done = run("explain", "a.jpg", *words)
    assert done.exit_code == 0, done.output
    assert "pixels of" not in done.stderr
    tables, _ = parts_of(Path("found/index.html"))
    ((_, table),) = tables.values()
    assert table["pixelSize"] is None
    done = run("export", "found/a.npz", "--format", "nifti", "--scan", "a.jpg", "-o", "a.nii")
    assert done.exit_code != 0
    assert not Path("a.nii").exists()


def test_density_of_photographs_and_defaults_of_programs_say_nothing(tmp_path):
    picture = Image.fromarray(COLOUR)
    exif = Image.Exif()
    exif[0x0112] = 1
    exif.get_ifd(0x8769)[33434] = 0.01  # an exposure time
    picture.save(tmp_path / "camera.jpg", dpi=(300, 300), exif=exif)
    picture.save(tmp_path / "plain.jpg")
    picture.save(tmp_path / "screen.png", dpi=(96, 96))
    picture.save(tmp_path / "plain.bmp")
    info = PngImagePlugin.PngInfo()
    info.add(b"pHYs", (300).to_bytes(4, "big") * 2 + b"\0")  # a ratio, without a unit
    picture.save(tmp_path / "ratio.png", pnginfo=info)
    for path in sorted(tmp_path.iterdir()):
        assert original(path).pixel_size is None, path.name


@pytest.mark.parametrize("kind", ["tif", "jpg", "png"])
def test_damaged_tags_leave_the_pixel_size_out_and_never_crash(tmp_path, kind):
    path = tmp_path / f"a.{kind}"
    exif = Image.Exif()
    exif[270] = OME.format('PhysicalSizeX="0.25" PhysicalSizeY="0.5"')
    Image.fromarray(COLOUR).save(path, dpi=(300, 300), exif=exif)
    data = path.read_bytes()
    for place in range(0, min(len(data), 400), 3):
        path.write_bytes(data[:place] + b"\xff" + data[place + 1 :])
        try:
            found = original(path, max_pixels=10_000)
        except Refusal:
            continue
        assert found.pixel_size is None or all(side > 0 for side in found.pixel_size.sides)


# The commands.


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def parts_of(page):
    """Return the tables of a page, and its other parts by name."""
    text = page.read_text("utf-8")
    found = dict(re.findall(r'<script type="[a-z/]+" id="([^"]+)">([^<]*)</script>', text))
    data = json.loads(found["data"])
    if data["folder"]:
        for file in (page.parent / data["folder"]).rglob("*.js"):
            for line in file.read_text().splitlines():
                name, part = re.fullmatch(r'hshapPart\(("[^"]*"), (".*")\);', line).groups()
                found[json.loads(name)] = json.loads(part)
    tables = {
        view["name"]: (view["home"], json.loads(found[f"{view['home']}/view"]))
        for view in data["views"]
    }
    return tables, found


def deep_tile(part, bits, width):
    data = np.frombuffer(zlib.decompress(base64.b64decode(part)), np.uint8)
    if bits == 16:
        high, low = data.reshape(2, -1).astype(np.uint16)
        data = high << 8 | low
    return np.cumsum(data.reshape(-1, width), axis=1, dtype=data.dtype)


@pytest.fixture(scope="module")
def clinic(tmp_path_factory):
    """A folder of a 16-bit scan of 600 x 900 pixels and an X-ray in colours, for 60 x 90."""
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
    (folder / "bright.py").write_text(
        "import numpy as np\n"
        "def model(batch):\n"
        "    return np.stack([batch.max(axis=(1, 2, 3)), batch.mean(axis=(1, 2, 3))], 1)\n"
    )
    (folder / "hshap.toml").write_text('size = [60, 90]\nchannels = "grey"\n')
    return folder, scan


@pytest.fixture
def explain(clinic, monkeypatch):
    folder, _ = clinic
    monkeypatch.chdir(folder)

    def explained(out, *words):
        common = ("--config", "hshap.toml", "--resize", "--partition", "quadtree", "--min-size", 10)
        words = ("--model", "bright:model", *common, "--out", out, *words)
        done = run("explain", "images", *words)
        assert done.exit_code == 0, done.output
        return folder / out, done

    return explained


def test_the_page_of_explain_has_the_files_at_their_own_size_and_depth(clinic, explain):
    _, scan = clinic
    out, done = explain("found", "--target", 0, "--force")
    tables, parts = parts_of(out / "index.html")
    home, table = tables["scan.tif"]
    assert (table["grid"], table["size"]) == ([60, 90], [600, 900])
    assert table["place"]["shape"] == [600, 900]
    assert (table["image"]["kind"], table["image"]["bits"]) == ("grey", 16)
    assert np.array_equal(deep_tile(parts[f"{home}/0-0-0"], 16, 900), scan)
    assert (table["pixelSize"], table["unit"]) == ([0.05, 0.05], "mm")
    assert "scan.tif: pixels of 0.05 mm, as its OME-XML says" in done.stderr
    home, table = tables["xray.png"]
    assert (table["image"]["kind"], table["image"]["bits"]) == ("grey", 8)  # with a window
    assert np.array_equal(deep_tile(parts[f"{home}/0-0-0"], 8, 900), scan >> 8)
    assert table["pixelSize"] is None


def test_an_option_overrides_the_pixel_size_of_files(explain):
    out, done = explain("found-2", "--target", 0, "--pixel-size", 3, "--unit", "km", "--force")
    tables, _ = parts_of(out / "index.html")
    assert {(tuple(table["pixelSize"]), table["unit"]) for _, table in tables.values()} == {
        ((3, 3), "km")
    }
    assert "pixels of" not in done.stderr


def test_view_shows_two_explanations_side_by_side_over_the_original(clinic, explain):
    folder, scan = clinic
    one, _ = explain("bright", "--target", 0, "--force")
    other, _ = explain("mean", "--target", 1, "--force")
    words = (one / "scan.npz", other / "scan.npz", folder / "images" / "scan.tif")
    done = run("view", *words, "--out", folder / "both.html", "--force")
    assert done.exit_code == 0, done.output
    tables, parts = parts_of(folder / "both.html")
    home, table = tables["scan.tif"]
    assert [one["name"] for one in table["classes"]] == ["0", "1"]
    assert table["pixelSize"] == [0.05, 0.05]
    assert np.array_equal(deep_tile(parts[f"{home}/0-0-0"], 16, 900), scan)


def test_view_shows_models_of_different_sizes_side_by_side(clinic, explain):
    folder, _ = clinic
    one, _ = explain("bright", "--target", 0, "--force")
    other, _ = explain("small", "--target", 0, "--force", "--size", "40x30")
    words = (one / "scan.npz", other / "scan.npz", folder / "images" / "scan.tif")
    for number, files in enumerate((words, words[:2])):  # with the image, and on grey
        page = folder / f"sizes-{number}.html"
        done = run("view", *files, "--out", page, "--force")
        assert done.exit_code == 0, done.output
        table = parts_of(page)[0]["scan.tif"][1]
        assert table["size"] == [600, 900]
        assert [one["name"] for one in table["classes"]] == ["0 (bright)", "0 (small)"]
        assert [axis[-1] for axis in table["place"]["edges"]] == [600, 900]


def test_a_large_image_has_a_folder_beside_the_page_of_view(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    noise = RANDOM.integers(0, 256, (3000, 3000, 3), dtype=np.uint8)
    Image.fromarray(noise).save("large.png", compress_level=1)
    hshap.demo.example().placed((3000, 3000)).save("large.npz")
    assert run("view", "large.npz", "large.png").exit_code == 0
    tables, parts = parts_of(tmp_path / "large.html")
    assert "2-0-0" in " ".join(parts)
    assert list(tables) == ["large.png"]
    again = run("view", "large.npz", "large.png")
    assert again.exit_code == Code.OUTPUT
    assert "exists already" in again.stderr
    assert run("view", "large.npz", "--force").exit_code == 0  # on grey: one file is enough
    assert not (tmp_path / "large_files").exists()
    (tmp_path / "large.html").unlink()
    (tmp_path / "large_files").mkdir()
    (tmp_path / "large_files" / "thesis.txt").write_text("mine")
    refused = run("view", "large.npz", "large.png")
    assert refused.exit_code == Code.OUTPUT
    assert "large_files exists already; move it away" in refused.stderr
    assert (tmp_path / "large_files" / "thesis.txt").read_text() == "mine"
    assert not (tmp_path / "large.html").exists()


def test_view_tells_explanations_of_one_class_apart(clinic, explain):
    folder, _ = clinic
    one, _ = explain("bright", "--target", 0, "--tolerance", "0.1", "--force")
    found = hshap.Explanation.load(one / "scan.npz")
    found.at(min_size=20).save(folder / "coarse.npz")
    done = run("view", one / "scan.npz", folder / "coarse.npz", "--out", "two.html", "--force")
    assert done.exit_code == 0, done.output
    tables, _ = parts_of(folder / "two.html")
    names = [one["name"] for one in tables["scan.tif"][1]["classes"]]
    assert names == ["0 (scan)", "0 (coarse)"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("a.npz", "a.png", "b.png"), "a.png and b.png are two images"),
        (("a.npz", "a.npz"), "a.npz is named twice"),
    ],
)
def test_view_refuses_two_images_and_one_explanation_twice(words, told):
    done = run("view", *words)
    assert done.exit_code == Code.USAGE
    assert told in done.stderr


# Places of turned photographs

UPRIGHT = np.full((32, 64, 3), 10, np.uint8)
UPRIGHT[4:8, 40:48] = 250
STORED = {  # by EXIF: the row and column in the file of the upright pixel at row r and column c
    1: lambda r, c: (r, c),
    2: lambda r, c: (r, 63 - c),
    3: lambda r, c: (31 - r, 63 - c),
    4: lambda r, c: (31 - r, c),
    5: lambda r, c: (c, r),
    6: lambda r, c: (63 - c, r),
    7: lambda r, c: (63 - c, 31 - r),
    8: lambda r, c: (c, 31 - r),
}


def box_of(corners):
    low, high = np.min(corners, axis=0), np.max(corners, axis=0)
    return [*low.tolist(), *(high - low).tolist()]


def boxes_in(path, kind):  # noqa: PLR0911, one for each format
    """Return the boxes x, y, width and height of a document, read by the rules of its format."""
    if kind == "csv":
        rows = [
            row for row in csv.DictReader(path.read_text().splitlines()) if row["leaf"] == "True"
        ]
        corners = [
            [[float(row[f"{axis}_{end}"]) for axis in "xy"] for end in ("start", "stop")]
            for row in rows
        ]
        return [box_of(pair) for pair in corners]
    if kind in {"png", "tiff"}:
        heat = np.asarray(Image.open(path)).astype(float)
        rows, columns = np.nonzero(heat > heat.min())
        return [[columns.min(), rows.min(), np.ptp(columns) + 1, np.ptp(rows) + 1]]
    text = path.read_text()
    if kind == "cvat":
        lines = re.findall(r'points="([^"]+)"', text)
        return [box_of([list(map(float, p.split(","))) for p in line.split(";")]) for line in lines]
    document = json.loads(text)
    if kind == "coco":
        return [one["bbox"] for one in document["annotations"]]
    if kind == "geojson":
        return [box_of(one["geometry"]["coordinates"][0]) for one in document["features"]]
    if kind == "datumaro":
        drawn = [shape["points"] for item in document["items"] for shape in item["annotations"]]
        return [box_of(np.reshape(points, (-1, 2))) for points in drawn]
    assert kind == "label-studio"
    found = []
    for task in document:
        for one in task["predictions"][0]["result"]:
            size = np.array([one["original_width"], one["original_height"]])
            found.append(box_of(np.array(one["value"]["points"]) * size / 100))
    return found


@pytest.mark.parametrize("orientation", STORED)
@pytest.mark.parametrize("command", ["explain", "run"])
def test_exports_of_turned_photographs_are_upright_and_say_so(
    tmp_path, monkeypatch, orientation, command
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("fishes.py").write_text("def model(batch):\n    return batch.max(axis=(1, 2, 3))\n")
    pairs = {STORED[orientation](r, c): UPRIGHT[r, c] for r in range(32) for c in range(64)}
    sides = (64, 32, 3) if orientation > 4 else (32, 64, 3)
    stored = np.zeros(sides, np.uint8)
    for place, colour in pairs.items():
        stored[place] = colour
    exif = Image.Exif()
    exif[0x0112] = orientation
    Path("in").mkdir()
    Image.fromarray(stored).save("in/a.png", exif=exif)
    words = ("--baseline", "constant:0.04", "--partition", "quadtree", "--min-size", 4)
    done = run(command, "in", "--model", "fishes:model", "--out", "found", "--target", 0, *words)
    assert done.exit_code == 0, done.output
    note = f"the EXIF orientation {orientation} of the file is applied"
    for kind in ("coco", "geojson", "csv", "png", "tiff", "cvat", "label-studio", "datumaro"):
        done = run("export", "found", "--format", kind, "-o", f"a.{kind}")
        assert done.exit_code == 0, done.output
        assert (note in done.stderr) == (orientation > 1), done.stderr
        path = Path(f"a.{kind}")
        path = next(path.iterdir()) if path.is_dir() else path
        whole = np.array(boxes_in(path, kind))
        corners = [*whole[:, :2].min(axis=0), *(whole[:, :2] + whole[:, 2:]).max(axis=0)]
        assert corners == [40, 4, 48, 8], (kind, whole)
        if kind in {"coco", "geojson"}:
            assert (note in path.read_text()) == (orientation > 1)
    # Formats with geometry have the pixels of the file, so they are refused.
    placed = run("export", "found", "--format", "ome-tiff", "-o", "a.ome.tif", "--scan", "in/a.png")
    assert placed.exit_code != 0
    assert ("EXIF orientation" in placed.stderr) == (orientation > 1)
