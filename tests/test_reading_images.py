"""Images are read upright, on a background, and at the depth that their files have."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image")
imagecodecs = pytest.importorskip("imagecodecs")
tifffile = pytest.importorskip("tifffile")
from PIL import PngImagePlugin

from hshap.cli.faults import Refusal
from hshap.cli.inputs.formats import Format
from hshap.cli.inputs.images import Reader, read

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
TURNED = "turned upright"


@pytest.fixture
def upright():
    """A colour image in which no turn looks like another."""
    return np.random.default_rng(3).integers(0, 256, (12, 20, 3), dtype=np.uint8)


def oriented(number):
    exif = Image.Exif()
    exif[0x0112] = number
    return exif


def pixels_of(path, **options):
    picture = read(path, Reader(Format(**options)))
    return np.moveaxis(picture.pixels, 0, -1), picture


@pytest.mark.parametrize("number", STORED)
@pytest.mark.parametrize("suffix", ["png", "webp", "jpg", "tiff"])
def test_every_orientation_is_turned_upright(tmp_path, upright, number, suffix):
    path = tmp_path / f"photo.{suffix}"
    stored = np.ascontiguousarray(STORED[number](upright))
    options = {"jpg": {"quality": 100, "subsampling": 0}, "webp": {"lossless": True}}
    extra = {"tiffinfo": {274: number}} if suffix == "tiff" else {"exif": oriented(number)}
    Image.fromarray(stored).save(path, **options.get(suffix, {}), **extra)
    found, picture = pixels_of(path)
    assert found.shape == upright.shape
    assert np.abs(found - upright / 255).max() < (0.05 if suffix == "jpg" else 1e-6)
    assert any(TURNED in note for note in picture.notes) == (number > 1)


@pytest.mark.parametrize("number", STORED)
@pytest.mark.parametrize("planar", ["contig", "separate"])
def test_16_bit_colour_of_a_tiff_is_turned_and_keeps_all_bits(tmp_path, number, planar):
    upright = np.random.default_rng(3).integers(0, 65536, (12, 20, 3), dtype=np.uint16)
    stored = np.ascontiguousarray(STORED[number](upright))
    if planar == "separate":
        stored = np.moveaxis(stored, -1, 0)
    tags = [(274, "H", 1, number, True)]
    path = tmp_path / "deep.tif"
    tifffile.imwrite(
        path, stored, photometric="rgb", planarconfig=planar, extratags=tags, metadata=None
    )
    found, _ = pixels_of(path)
    np.testing.assert_array_equal(np.rint(found * 65535), upright)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"compression": "zlib"},
        {"compression": "lzw", "predictor": True},
        {"tile": (16, 16)},
        {"byteorder": ">"},
        {"bigtiff": True},
    ],
)
def test_16_bit_colour_of_any_usual_tiff_keeps_all_bits(tmp_path, options):
    deep = np.random.default_rng(0).integers(0, 65536, (40, 30, 3), dtype=np.uint16)
    path = tmp_path / "deep.tif"
    tifffile.imwrite(path, deep, photometric="rgb", metadata=None, **options)
    found, picture = pixels_of(path)
    np.testing.assert_array_equal(np.rint(found * 65535), deep)
    assert picture.notes == ()


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "LA"])
def test_16_bit_colour_of_a_png_keeps_all_bits(tmp_path, mode):
    deep = np.random.default_rng(0).integers(0, 65536, (40, 30, len(mode)), dtype=np.uint16)
    if "A" in mode:
        deep[..., -1] = 65535
    path = tmp_path / "deep.png"
    path.write_bytes(imagecodecs.png_encode(deep))
    found, picture = pixels_of(path)
    colours = deep if mode == "RGB" else deep[..., :-1]
    np.testing.assert_array_equal(np.rint(found * 65535), np.broadcast_to(colours, (40, 30, 3)))
    assert picture.notes == ()


def test_a_frame_of_16_bit_colour_is_the_one_that_is_asked_for(tmp_path):
    deep = np.random.default_rng(0).integers(0, 65536, (3, 16, 16, 3), dtype=np.uint16)
    path = tmp_path / "pages.tif"
    tifffile.imwrite(path, deep, photometric="rgb", metadata=None)
    picture = read(path, Reader(Format(), frame=2))
    np.testing.assert_array_equal(np.rint(np.moveaxis(picture.pixels, 0, -1) * 65535), deep[2])


def test_16_bit_colour_has_the_white_of_the_options(tmp_path):
    deep = np.full((4, 4, 3), 4095, np.uint16)
    path = tmp_path / "twelve.png"
    path.write_bytes(imagecodecs.png_encode(deep))
    assert pixels_of(path, white=4095.0)[0].max() == 1.0


def test_16_bit_colour_is_resized_and_made_grey_at_full_depth(tmp_path):
    deep = np.full((8, 8, 3), (100, 200, 300), np.uint16)
    path = tmp_path / "dark.png"
    path.write_bytes(imagecodecs.png_encode(deep))
    picture = read(path, Reader(Format(size=(4, 4), channels="grey"), resize=True))
    grey = (299 * 100 + 587 * 200 + 114 * 300) / 1000
    np.testing.assert_allclose(picture.pixels * 65535, np.full((1, 4, 4), grey), rtol=1e-5)
    assert picture.resized_from == (8, 8)


@pytest.mark.parametrize(
    ("background", "colour"), [("white", (255, 255, 255)), ("#ff0080", (255, 0, 128))]
)
@pytest.mark.parametrize("kind", ["RGBA", "LA", "P", "deep RGBA", "deep key", "premultiplied"])
def test_transparent_pixels_are_laid_on_the_background(tmp_path, kind, background, colour):
    path = tmp_path / ("a.tif" if kind == "premultiplied" else "a.png")
    half = np.zeros((4, 6, 4), np.uint8)
    half[:, :3] = (10, 10, 10, 255)
    if kind == "RGBA":
        Image.fromarray(half).save(path)
    elif kind == "LA":
        Image.fromarray(half).convert("LA").save(path)
    elif kind == "P":
        Image.fromarray((half[..., 3] > 0).astype(np.uint8)).convert("P").save(path, transparency=0)
    elif kind == "deep RGBA":
        path.write_bytes(imagecodecs.png_encode(half.astype(np.uint16) * 257))
    elif kind == "deep key":
        path.write_bytes(with_key(half[..., :3].astype(np.uint16) * 257, (0, 0, 0)))
    else:
        tifffile.imwrite(
            path, half.astype(np.uint16) * 257, photometric="rgb", extrasamples=["assocalpha"]
        )
    picture = read(path, Reader(Format(), background=background))
    found = np.moveaxis(picture.bytes(), 0, -1)
    assert (found[:, 3:] == colour).all()
    assert len(np.unique(found[:, :3].reshape(-1, 3), axis=0)) == 1
    assert found[0, 0].max() <= 10
    (note,) = picture.notes
    assert background in note


def with_key(samples, key):
    """A PNG whose pixels of one colour are transparent, by a tRNS chunk."""
    import struct
    import zlib

    data = imagecodecs.png_encode(samples)
    body = b"tRNS" + struct.pack(">3H", *key)
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    return data[:33] + chunk + data[33:]


def test_a_grey_16_bit_png_with_a_transparent_value_is_laid_on_the_background(tmp_path):
    values = np.full((4, 4), 1000, np.uint16)
    values[0, 0] = 7
    info = PngImagePlugin.PngInfo()
    path = tmp_path / "a.png"
    Image.fromarray(values).save(path, pnginfo=info, transparency=7)
    found, picture = pixels_of(path, channels="grey")
    assert found[0, 0] == 1.0
    assert np.rint(found[1, 1] * 65535) == 1000
    assert len(picture.notes) == 1


def test_opaque_images_with_an_alpha_channel_are_read_without_a_note(tmp_path):
    Image.new("RGBA", (4, 4), (1, 2, 3, 255)).save(tmp_path / "a.png")
    assert pixels_of(tmp_path / "a.png")[1].notes == ()


def test_colour_that_must_be_cut_to_8_bits_says_so(tmp_path):
    path = tmp_path / "a.ppm"
    path.write_bytes(b"P6 2 2 65535\n" + np.full(12, 30000, ">u2").tobytes())
    assert pixels_of(path)[1].notes == ("16-bit colour was read at 8 bits",)
    with pytest.raises(Refusal, match=r"white=1000.0 does not apply"):
        pixels_of(path, white=1000.0)


@pytest.mark.parametrize(("kind", "notes"), [(np.uint8, 0), (np.uint16, 1)])
def test_jpeg_2000_says_that_its_colour_is_cut(tmp_path, kind, notes):
    path = tmp_path / "a.jp2"
    path.write_bytes(imagecodecs.jpeg2k_encode(np.full((16, 16, 3), 200, kind), level=0))
    found, picture = pixels_of(path)
    assert len(picture.notes) == notes
    assert found.shape == (16, 16, 3)


def test_a_background_that_is_no_colour_is_refused():
    with pytest.raises(Refusal, match=r"--background blu is not a colour"):
        Reader(Format(), background="blu")
    with pytest.raises(Refusal, match=r"--background #ffffff80 is not a colour"):
        Reader(Format(), background="#ffffff80")


def test_a_turned_image_is_checked_by_its_upright_size(tmp_path):
    path = tmp_path / "a.jpg"
    Image.new("RGB", (20, 12)).save(path, exif=oriented(6))
    assert read(path, Reader(Format(size=(20, 12)))).pixels.shape == (3, 20, 12)
    with pytest.raises(Refusal, match="20 x 12"):
        read(path, Reader(Format(size=(12, 20))))


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_every_cut_of_a_deep_file_is_refused_in_one_line(tmp_path, suffix, capfd):
    deep = np.random.default_rng(0).integers(0, 65536, (9, 7, 3), dtype=np.uint16)
    file = io.BytesIO()
    tifffile.imwrite(file, deep, photometric="rgb", metadata=None, compression="zlib")
    whole = imagecodecs.png_encode(deep) if suffix == "png" else file.getvalue()
    path = tmp_path / f"cut.{suffix}"
    for end in range(0, len(whole) - 12, 7):
        path.write_bytes(whole[:end])
        with pytest.raises(Refusal) as refused:
            read(path, Reader(Format()))
        assert "\n" not in str(refused.value)
        assert str(path) in str(refused.value)
    assert capfd.readouterr().err == ""


def test_bytes_that_changed_in_a_deep_file_never_crash(tmp_path):
    rng = np.random.default_rng(1)
    deep = rng.integers(0, 65536, (9, 7, 3), dtype=np.uint16)
    file = io.BytesIO()
    tifffile.imwrite(file, deep, photometric="rgb", metadata=None)
    for whole, suffix in ((imagecodecs.png_encode(deep), "png"), (file.getvalue(), "tif")):
        for _ in range(150):
            data = bytearray(whole)
            for place in rng.integers(0, min(len(data), 400), 3):
                data[place] = rng.integers(0, 256)
            path = Path(tmp_path / f"changed.{suffix}")
            path.write_bytes(bytes(data))
            try:
                found = read(path, Reader(Format(), max_pixels=10_000))
            except Refusal:
                continue
            assert found.pixels.size <= 4 * 10_000
