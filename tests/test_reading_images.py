"""Image files reach the model upright, on a background, and at their depth; the page as they are.

Oracles are pillow, tifffile, imagecodecs and the arrays that were written. Each test is one run of
the command over a folder of files.
"""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from opened import explain, opened

Image = pytest.importorskip("PIL.Image")
imagecodecs = pytest.importorskip("imagecodecs")
tifffile = pytest.importorskip("tifffile")
for module in ("typer", "rich", "matplotlib"):
    pytest.importorskip(module)

pytestmark = pytest.mark.usefixtures("blank_pictures")

RANDOM = np.random.default_rng(7)
GREY = RANDOM.integers(0, 256, (20, 30), dtype=np.uint8)
COLOUR = RANDOM.integers(0, 256, (20, 30, 3), dtype=np.uint8)
DEEP = RANDOM.integers(0, 2**16, (20, 30), dtype=np.uint16)
DEEP_COLOUR = RANDOM.integers(0, 2**16, (20, 30, 3), dtype=np.uint16)
# The rows and columns of the stored image, seen from the upright one (EXIF 2.3, tag 0x0112).
STORED = {
    1: lambda upright: upright,
    2: lambda upright: upright[:, ::-1],
    3: lambda upright: upright[::-1, ::-1],
    4: lambda upright: upright[::-1],
    5: lambda upright: upright.swapaxes(0, 1),
    6: lambda upright: upright.swapaxes(0, 1)[::-1],
    7: lambda upright: upright[::-1, ::-1].swapaxes(0, 1),
    8: lambda upright: upright.swapaxes(0, 1)[:, ::-1],
}
OME = (
    '<?xml version="1.0"?><OME xmlns="x"><Image ID="1"><Pixels ID="1" {} SizeX="30"/></Image></OME>'
)


def refused(*words, code=3):
    """Return the one line with which the command refuses."""
    done, _ = explain(*words)
    assert done.exit_code == code, done.output
    (line,) = done.stderr.splitlines()
    return line


# Upright


def test_every_orientation_is_turned_upright(tmp_path):
    for number, turn in STORED.items():
        stored = np.ascontiguousarray(turn(COLOUR))
        exif = Image.Exif()
        exif[0x0112] = number
        exif[270] = OME.format('PhysicalSizeX="0.25" PhysicalSizeY="0.5"')
        for suffix in ("png", "webp", "jpg", "tif"):
            options = {"webp": {"lossless": True}, "jpg": {"quality": 100, "subsampling": 0}}
            path = tmp_path / f"{suffix}{number}.{suffix}"
            Image.fromarray(stored).save(path, exif=exif, **options.get(suffix, {}))
        deep = np.ascontiguousarray(turn(DEEP_COLOUR))
        for planes, data in (("contig", deep), ("separate", np.moveaxis(deep, -1, 0))):
            options = {"photometric": "rgb", "planarconfig": planes, "metadata": None}
            tags = [(274, "H", 1, number, True)]
            tifffile.imwrite(tmp_path / f"{planes}{number}.tif", data, extratags=tags, **options)
    done = opened(tmp_path)
    assert "and 41 more: turned upright" in done.told
    for name, read in done.images.items():
        if name.startswith(("contig", "separate")):
            np.testing.assert_array_equal(np.rint(read.seen * 65535), DEEP_COLOUR, name)
            np.testing.assert_array_equal(read.page, np.rint(DEEP_COLOUR / 257), name)
        else:
            most = 0.05 * 255 if name.endswith("jpg") else 1e-4
            assert np.abs(read.seen * 255 - COLOUR).max() < most, name
            assert np.abs(read.page.astype(int) - COLOUR).max() <= most, name
        if name.startswith("tif"):  # pixels are turned, too
            sides = [0.25, 0.5] if int(name[3]) >= 5 else [0.5, 0.25]
            assert (read.table["pixelSize"], read.table["unit"]) == (sides, "µm")
        else:
            assert read.table["pixelSize"] is None, name


def test_turned_images_have_their_upright_size(tmp_path):
    path, exif = tmp_path / "a.jpg", Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(COLOUR).save(path, exif=exif)
    assert opened(path, "--size", "30x20").images["a.jpg"].seen.shape == (30, 20, 3)
    assert "30 x 20" in refused(path, "--size", "20x30", code=4)


# Depth


def test_every_file_keeps_its_depth(tmp_path):
    pages = np.stack([DEEP, DEEP[::-1]])
    rgb = {"photometric": "rgb", "metadata": None}
    for name, values, options in (
        ("grey", DEEP, {}),
        ("bytes", GREY, {}),
        ("order", DEEP, {"byteorder": ">"}),
        ("plain", DEEP_COLOUR, rgb),
        ("zlib", DEEP_COLOUR, {"compression": "zlib", **rgb}),
        ("lzw", DEEP_COLOUR, {"compression": "lzw", "predictor": True, **rgb}),
        ("tiled", DEEP_COLOUR, {"tile": (16, 16), **rgb}),
        ("colour order", DEEP_COLOUR, {"byteorder": ">", **rgb}),
        ("big", DEEP_COLOUR, {"bigtiff": True, **rgb}),
        ("8 bits tiled", COLOUR, {"tile": (16, 16), "photometric": "rgb"}),
    ):
        tifffile.imwrite(tmp_path / f"{name}.tif", values, **options)
    Image.fromarray(GREY).save(tmp_path / "bytes.png")
    Image.fromarray(DEEP).save(tmp_path / "grey.png")
    opaque = np.full((20, 30, 1), 65535, np.uint16)
    for mode, values in (
        ("plain", DEEP_COLOUR),
        ("alpha", np.concatenate([DEEP_COLOUR, opaque], axis=2)),
        ("alpha grey", np.concatenate([DEEP[..., None], opaque], axis=2)),
    ):
        (tmp_path / f"{mode}.png").write_bytes(imagecodecs.png_encode(values))
    Image.new("RGBA", (4, 4), (1, 2, 3, 255)).save(tmp_path / "opaque.png")
    done = opened(tmp_path)
    assert "read at" not in done.told
    assert "laid on" not in done.told
    for name, read in done.images.items():
        if name == "opaque.png":
            continue
        small = "bytes" in name or "8 bits" in name
        grey = "grey" in name or "bytes" in name or name == "order.tif"
        values = (GREY if grey else COLOUR) if small else (DEEP if grey else DEEP_COLOUR)
        whole = values if not grey else np.repeat(values[..., None], read.seen.ndim, axis=2)
        most = 255 if small else 65535
        np.testing.assert_array_equal(np.rint(read.seen * most), whole[..., :3], name)
        shown = values if small or grey else np.rint(values / 257)
        np.testing.assert_array_equal(read.page, shown, name)
    tifffile.imwrite(tmp_path / "pages.tif", pages, photometric="minisblack")
    path = tmp_path / "pages.tif"
    np.testing.assert_array_equal(opened(path, "--frame", 1).images["pages.tif"].page, pages[1])
    assert "--frame" in refused(path)


def test_options_of_depth_are_applied(tmp_path):
    twelve = tmp_path / "twelve.png"
    twelve.write_bytes(imagecodecs.png_encode(np.full((8, 8, 3), (4095, 2048, 0), np.uint16)))
    read = opened(twelve, "--white", 4095).images["twelve.png"]
    np.testing.assert_allclose(read.seen[0, 0], (1, 2048 / 4095, 0), atol=1e-6)
    done = opened(twelve, "--resize", "--size", "4x4", "--channels", "grey")
    grey = (299 * 4095 + 587 * 2048) / 1000 / 65535  # at full depth
    np.testing.assert_allclose(done.images["twelve.png"].seen, np.full((4, 4), grey), rtol=1e-5)
    floats = tmp_path / "floats.tif"
    tifffile.imwrite(floats, DEEP.astype(np.float32) / 8)
    read = opened(floats, "--white", 9000).images["floats.tif"]
    facts = read.table["image"]
    assert facts["window"] == [0, 9000]
    np.testing.assert_allclose(facts["low"] + facts["step"] * read.page, DEEP / 8, atol=0.1)
    assert "--white" in refused(floats)


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("a.ppm", b"P6 2 2 65535\n" + np.full(12, 30000, ">u2").tobytes(), True),
        ("a.jp2", lambda: imagecodecs.jpeg2k_encode(COLOUR, level=0), False),
        ("b.jp2", lambda: imagecodecs.jpeg2k_encode(DEEP_COLOUR, level=0), True),
    ],
)
def test_colour_that_must_be_cut_says_so(tmp_path, name, data, told):
    (tmp_path / name).write_bytes(data if isinstance(data, bytes) else data())
    assert ("16-bit colour was read at 8 bits" in opened(tmp_path / name).told) == told
    if name == "a.ppm":
        assert "white=1000.0 does not apply" in refused(tmp_path / name, "--white", 1000)


def test_cmyk_is_shown_as_pillow_converts_it(tmp_path):
    for name in ("a.jpg", "a.tif"):
        Image.fromarray(COLOUR).convert("CMYK").save(tmp_path / name)
        expected = np.asarray(Image.open(tmp_path / name).convert("RGB"))
        np.testing.assert_array_equal(opened(tmp_path / name).images[name].page, expected)


# Transparency


def with_key(samples, key):
    """A PNG whose pixels of one colour are transparent, by a tRNS chunk."""
    data = imagecodecs.png_encode(np.ascontiguousarray(samples))
    body = b"tRNS" + struct.pack(f">{len(key)}H", *key)
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    return data[:33] + chunk + data[33:]


@pytest.mark.parametrize(
    ("background", "colour"), [("white", (255, 255, 255)), ("#ff0080", (255, 0, 128))]
)
def test_transparent_pixels_are_laid_on_the_background(tmp_path, background, colour):
    half = np.zeros((4, 6, 4), np.uint8)
    half[:, :3] = (10, 10, 10, 255)
    deep = half.astype(np.uint16) * 257
    Image.fromarray(half).save(tmp_path / "colour.png")
    Image.fromarray(half).convert("LA").save(tmp_path / "grey.png")
    indexed = Image.fromarray((half[..., 3] > 0).astype(np.uint8)).convert("P")
    indexed.putpalette([0, 0, 0, 10, 10, 10])
    indexed.save(tmp_path / "palette.png", transparency=0)
    indexed.save(tmp_path / "palette.gif", transparency=0)
    (tmp_path / "deep.png").write_bytes(imagecodecs.png_encode(deep))
    (tmp_path / "key.png").write_bytes(with_key(deep[..., :3], (0, 0, 0)))
    path = tmp_path / "premultiplied.tif"
    tifffile.imwrite(path, deep, photometric="rgb", extrasamples=["assocalpha"])
    done = opened(tmp_path, "--background", background)
    assert f"and 6 more: transparent pixels are laid on {background}" in done.told
    for name, read in done.images.items():
        for pixels in (np.rint(read.seen * 255), read.page):
            if pixels.ndim == 3:
                assert (pixels[:, 3:] == colour).all(), name
                assert (pixels[:, :3] == 10).all(), name
            else:  # grey on white stays grey
                assert background == "white"
                assert (pixels[:, 3:] == 255).all(), name


def test_transparent_grey_of_16_bits_keeps_its_depth(tmp_path):
    alpha = RANDOM.integers(0, 2**16, DEEP.shape, dtype=np.uint16)
    (tmp_path / "a.png").write_bytes(imagecodecs.png_encode(np.stack([DEEP, alpha], axis=-1)))
    read = opened(tmp_path / "a.png", "--background", "#808080").images["a.png"]
    facts, share = read.table["image"], alpha / 65535
    expected = DEEP * share + 128 * 257 * (1 - share)
    assert np.abs(facts["low"] + facts["step"] * read.page - expected).max() <= 0.51
    (tmp_path / "key.png").write_bytes(with_key(DEEP, (int(DEEP[0, 0]),)))
    read = opened(tmp_path / "key.png").images["key.png"]
    expected = np.where(DEEP[0, 0] == DEEP, 65535, DEEP)
    np.testing.assert_array_equal(read.page, expected)
    np.testing.assert_array_equal(np.rint(read.seen[..., 0] * 65535), expected)
    for background in ("blu", "#ffffff80"):
        done, _ = explain(tmp_path / "a.png", "--background", background)
        assert f"--background {background} is not a colour" in done.stderr


# Damaged files


def deep_files():
    deep = np.random.default_rng(0).integers(0, 65536, (9, 7, 3), dtype=np.uint16)
    file = io.BytesIO()
    tifffile.imwrite(file, deep, photometric="rgb", metadata=None, compression="zlib")
    return {"png": imagecodecs.png_encode(deep), "tif": file.getvalue()}


def test_every_cut_of_a_file_is_refused(tmp_path, capfd):
    cuts = 0
    Image.fromarray(COLOUR).save(tmp_path / "good.png")
    for suffix, whole in deep_files().items():
        for end in range(0, len(whole) - 12, 7):
            (tmp_path / f"cut{end}.{suffix}").write_bytes(whole[:end])
            cuts += 1
    done = opened(tmp_path, code=7)
    assert list(done.images) == ["good.png"]
    assert len(done.skipped) == cuts
    for name, reason in done.skipped.items():
        assert str(tmp_path / name) in reason
        assert "\n" not in reason
    assert capfd.readouterr().err == ""


def test_changed_bytes_of_images_never_crash(tmp_path):
    rng = np.random.default_rng(1)
    Image.fromarray(COLOUR).save(tmp_path / "good.png")
    for suffix, whole in deep_files().items():
        for number in range(100):
            data = bytearray(whole)
            for place in rng.integers(0, min(len(data), 400), 3):
                data[place] = rng.integers(0, 256)
            (tmp_path / f"changed{number}.{suffix}").write_bytes(bytes(data))
    done = opened(tmp_path, "--max-pixels", 10_000, code=7)
    assert len(done.images) + len(done.skipped) == 201
    assert max(read.seen.size for read in done.images.values()) <= 4 * 10_000
