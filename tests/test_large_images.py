"""Large images are read region by region, equal to the whole array, and bad files in one line."""

from __future__ import annotations

import json
import pickle
import tracemalloc

import numpy as np
import pytest

import hshap
from hshap import ArgumentError, FormatError
from hshap.large import LargeImage, open_image

tifffile = pytest.importorskip("tifffile")
pytest.importorskip("imagecodecs")

RNG = np.random.default_rng(0)
COLOURS = RNG.integers(0, 255, (3, 150, 211), dtype=np.uint8)
REGIONS = [
    ((0, 0), (150, 211)),
    ((13, 29), (140, 210)),
    ((64, 48), (65, 49)),
    ((149, 0), (150, 211)),
]


def tiff(path, pixels=COLOURS, **options):
    """Write pixels `(channels, height, width)` as TIFF, by default in small tiles."""
    options = {"tile": (32, 48), "photometric": "rgb", "compression": "zlib", **options}
    separate = options.get("planarconfig") == "separate"
    tifffile.imwrite(path, pixels if separate else np.moveaxis(pixels, 0, -1), **options)
    return path


def test_other_files_that_an_ome_tiff_names_are_not_opened(tmp_path):
    ids = [f"urn:uuid:{n}1111111-1111-1111-1111-111111111111" for n in range(2)]
    blocks = "".join(
        f'<TiffData FirstC="{n}" IFD="0" PlaneCount="1">'
        f'<UUID FileName="part{n}.ome.tif">{own}</UUID></TiffData>'
        for n, own in enumerate(ids)
    )
    for n, own in enumerate(ids):
        described = (
            '<?xml version="1.0"?><OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06" '
            f'UUID="{own}"><Image ID="Image:0"><Pixels ID="Pixels:0" DimensionOrder="XYZCT" '
            'Type="uint16" SizeX="64" SizeY="48" SizeZ="1" SizeC="2" SizeT="1">'
            f'<Channel ID="Channel:0:0"/><Channel ID="Channel:0:1"/>{blocks}</Pixels></Image></OME>'
        )
        pixels = np.full((48, 64), 7 + n, np.uint16)
        file = tmp_path / f"part{n}.ome.tif"
        tifffile.imwrite(file, pixels, description=described, tile=(16, 16), metadata=None)
    with tifffile.TiffFile(tmp_path / "part0.ome.tif") as file:
        assert file.series[0].shape == (2, 48, 64)  # the library itself opens the neighbour
    image = open_image(tmp_path / "part0.ome.tif")
    assert image.shape == (1, 48, 64)
    assert (image.read((0, 0), (48, 64)) == 7).all()
    image.close()


def zarr_image(path, arrays, axes="CYX", version=2, **entries):
    """Write arrays as the levels of an image in OME-Zarr, with metadata written by hand."""
    zarr = pytest.importorskip("zarr")
    path.mkdir()
    for number, array in enumerate(arrays):
        options = {"zarr_format": version} if int(zarr.__version__[0]) > 2 else {}
        made = zarr.open_array(
            str(path / str(number)),
            mode="w",
            shape=array.shape,
            chunks=tuple(min(side, 64) for side in array.shape),
            dtype=array.dtype,
            **options,
        )
        made[...] = array
    scales = {
        "axes": [
            {"name": letter.lower(), "type": "space", "unit": "micrometer"} for letter in axes
        ],
        "datasets": [
            {
                "path": str(number),
                "coordinateTransformations": [{"type": "scale", "scale": [0.5] * len(axes)}],
            }
            for number in range(len(arrays))
        ],
        **entries,
    }
    if version == 2:
        (path / ".zgroup").write_text('{"zarr_format": 2}')
        (path / ".zattrs").write_text(json.dumps({"multiscales": [scales]}))
    else:
        attributes = {"ome": {"version": "0.5", "multiscales": [scales]}}
        group = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
        (path / "zarr.json").write_text(json.dumps(group))
    return path


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"compression": None},
        {"compression": "lzw", "predictor": True},
        {"compression": "zstd", "bigtiff": True},
        {"planarconfig": "separate"},
        {"tile": None, "rowsperstrip": 7},
        {"compression": "jpeg", "tile": (64, 64)},
    ],
    ids=str,
)
def test_a_region_of_a_tiff_is_that_of_the_whole_array(tmp_path, options):
    path = tiff(tmp_path / "a.tif", **options)
    # JPEG loses a little, so tifffile's own reading is the truth; it says where channels are.
    pixels = COLOURS if "jpeg" not in str(options) else np.moveaxis(tifffile.imread(path), -1, 0)
    image = open_image(path)
    assert (image.shape, image.dtype, image.name) == ((3, 150, 211), np.uint8, "a.tif")
    for start, stop in REGIONS:
        whole = pixels[:, start[0] : stop[0], start[1] : stop[1]]
        assert np.array_equal(image.read(start, stop), whole)
    image.close()


def test_pages_are_channels_and_levels_are_those_of_the_pyramid(tmp_path):
    pixels = RNG.integers(0, 60_000, (5, 120, 200), dtype=np.uint16)
    path = tmp_path / "a.ome.tif"
    with tifffile.TiffWriter(path) as file:
        options = {"tile": (32, 32), "compression": "zlib"}
        size = {"PhysicalSizeY": 0.5, "PhysicalSizeX": 0.25}
        file.write(pixels, subifds=1, metadata={"axes": "CYX", **size}, **options)
        file.write(pixels[:, ::2, ::2], subfiletype=1, **options)
    image = open_image(path)
    assert image.levels == ((120, 200), (60, 100))
    assert image.pixel_size == (0.5, 0.25)
    assert np.array_equal(image.read((3, 4), (110, 190)), pixels[:, 3:110, 4:190])
    assert np.array_equal(image.read((3, 4), (50, 90), 1), pixels[:, ::2, ::2][:, 3:50, 4:90])
    image.close()


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("axes", ["CYX", "YX", "TCZYX"])
def test_a_region_of_ome_zarr_is_that_of_the_whole_array(tmp_path, version, axes):
    zarr = pytest.importorskip("zarr")
    if version == 3 and zarr.__version__ < "3":
        pytest.skip("this zarr reads version 2 alone")
    pixels = COLOURS if "C" in axes else COLOURS[:1]
    shape = {"T": 1, "C": len(pixels), "Z": 1, "Y": 150, "X": 211}
    array = pixels.reshape([shape[letter] for letter in axes])
    image = open_image(
        zarr_image(tmp_path / "a.zarr", [array, array[..., ::2, ::2]], axes, version)
    )
    assert image.shape == pixels.shape
    assert image.levels == ((150, 211), (75, 106))
    assert image.pixel_size == (0.5, 0.5)
    for start, stop in REGIONS:
        whole = pixels[:, start[0] : stop[0], start[1] : stop[1]]
        assert np.array_equal(image.read(start, stop), whole)
    assert np.array_equal(image.read((1, 2), (70, 100), 1), pixels[:, ::2, ::2][:, 1:70, 2:100])


def cut(path, keep):
    path.write_bytes(path.read_bytes()[:keep])
    return path


def one_strip(path):
    """A file that announces one strip of 20,000 x 20,000 pixels."""
    with tifffile.TiffFile(tiff(path, tile=None, rowsperstrip=150), mode="r+b") as file:
        for name in ("ImageLength", "ImageWidth", "RowsPerStrip"):
            file.pages[0].tags[name].overwrite(20_000)
    return path


def unknown_compression(path):
    with tifffile.TiffFile(tiff(path), mode="r+b") as file:
        file.pages[0].tags["Compression"].overwrite(34925 + 30_000)
    return path


def other_codec(path):
    zarr_image(path, [COLOURS])
    entry = json.loads((path / "0" / ".zarray").read_text())
    entry["filters"] = [{"id": "pickle", "protocol": 4}]
    (path / "0" / ".zarray").write_text(json.dumps(entry))
    return path


def without_level(path):
    return zarr_image(path, [COLOURS], datasets=[{"path": "7"}])


BAD = {
    "not tiled": (
        lambda p: one_strip(p / "a.tif"),
        "is not tiled: one piece of 20000 x 20000 x 3 takes 1,200,000,000 bytes",
    ),
    "truncated": (lambda p: cut(tiff(p / "a.tif", compression=None), 90_000), "is truncated"),
    "no TIFF": (lambda p: cut(tiff(p / "a.tif"), 3), "is no TIFF file that can be read"),
    "text": (lambda p: (p / "a.tif").write_text("text") and p / "a.tif", "is no TIFF file"),
    "compression": (lambda p: unknown_compression(p / "a.tif"), "cannot be decoded"),
    "axes": (
        lambda p: (
            tifffile.imwrite(p / "a.tif", np.zeros((7, 64, 64), np.uint8), metadata={"axes": "ZYX"})
            or p / "a.tif"
        ),
        "has the axes ZYX of lengths (7, 64, 64)",
    ),
    "another kind": (lambda p: (p / "a.png").write_text("x") and p / "a.png", "region by region"),
    "no zarr": (lambda p: p, "its metadata lists no multiscales"),
    "zarr axes": (
        lambda p: zarr_image(p / "a.zarr", [np.zeros((4, 64, 64), np.uint8)], "ZYX"),
        "has the axes ZYX of lengths (4, 64, 64)",
    ),
    "pickle in zarr": (lambda p: other_codec(p / "a.zarr"), "compressed by 'pickle'"),
    "level of zarr": (lambda p: without_level(p / "a.zarr"), "level '7' is missing"),
    "pickle": (
        lambda p: (p / "a.npy").write_bytes(pickle.dumps([1])) and p / "a.npy",
        "cannot be read as an array",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_told_in_one_line(tmp_path, case):
    make, said = BAD[case]
    if "zarr" in case:
        pytest.importorskip("zarr")
    with pytest.raises(FormatError) as error:
        open_image(make(tmp_path))
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert "; " in str(error.value)


NO_REGION, NO_LEVEL = "is no region of level 0", "has no such level; pass one of 0: 150 x 211"


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: open_image(COLOURS).read((0, 0), (151, 10)), ArgumentError, NO_REGION),
        (lambda: open_image(COLOURS).read((5, 5), (5, 9)), ArgumentError, NO_REGION),
        (lambda: open_image(COLOURS).read((0, 0), (5, 5), 1), ArgumentError, NO_LEVEL),
        (lambda: open_image("nowhere.tif"), FileNotFoundError, "nowhere"),
        *[
            (lambda image=image: open_image(image), ArgumentError, "image")
            for image in (3, None, np.zeros(5), np.zeros((2, 3, 4, 5)), np.array(["a"]))
        ],
    ],
)
def test_what_is_not_there_is_refused(make, error, said):
    with pytest.raises(error, match=said):
        make()


def test_a_numpy_file_is_a_memory_map(tmp_path):
    np.save(tmp_path / "a.npy", COLOURS)
    image = open_image(tmp_path / "a.npy")
    assert isinstance(image.array, np.memmap)
    assert isinstance(image, LargeImage)
    assert np.array_equal(image.read((13, 29), (140, 210)), COLOURS[:, 13:140, 29:210])


class Drawn:
    """A large image that is made as it is read: any object with these attributes will do."""

    name, dtype, pixel_size = "drawn", np.dtype(np.uint8), None

    def __init__(self, side):
        self.shape, self.levels = (1, side, side), ((side, side),)

    def read(self, start, stop, level=0):
        out = np.zeros((1, stop[0] - start[0], stop[1] - start[1]), np.uint8)
        out[0, 0, 0] = 255 * (tuple(start) == (256, 512))
        return out

    def close(self):
        pass


def peak_of(side):
    explainer = hshap.Explainer(
        hshap.Batched(hshap.demo.brightest, batch_size=4),
        baseline=hshap.Constant(0.0),
        partition=hshap.Bisection(min_size=8),
    )
    tracemalloc.start()
    try:
        found = hshap.large.explain_tiles(explainer, Drawn(side), 0, tiles=hshap.large.Tiles(256))
        return found, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_image():
    small, before = peak_of(1024)
    large, after = peak_of(8192)
    assert [box.start for box in large.boxes()] == [box.start for box in small.boxes()]
    assert large.scores.size == 64 * small.scores.size
    assert after < 1.2 * before + 2**20
    assert after < 8192**2 / 4
