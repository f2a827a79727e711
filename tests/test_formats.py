"""Files of hospitals and labs are read with their axes, spacing and place, or refused in one line.

The files are made by the formats' own libraries; places are computed here by their definitions.
"""

from __future__ import annotations

import os
import struct
import traceback
import zlib

import format_files as made
import numpy as np
import pytest

import hshap

pydicom = pytest.importorskip("pydicom")
nibabel = pytest.importorskip("nibabel")
zarr = pytest.importorskip("zarr")
tifffile = pytest.importorskip("tifffile")

RNG = np.random.default_rng(1)


@pytest.fixture(scope="module")
def series(tmp_path_factory):
    return made.dicom_series(tmp_path_factory.mktemp("formats") / "series")


def corners():
    return np.array([(z, y, x) for z in (0, 7) for y in (0, 31) for x in (0, 23)], float)


def placed(affine):
    return corners() @ affine[:3, :3].T + affine[:3, 3]


def test_a_dicom_series_is_sorted_by_position_and_rescaled(series):
    scan = hshap.read_image(series)
    assert (scan.axes, scan.grid, scan.unit) == ("CZYX", (8, 32, 24), "HU")
    np.testing.assert_array_equal(scan.array[0], made.volume())
    np.testing.assert_allclose(scan.spacing, made.SPACING, rtol=1e-6)
    assert scan.window == (-100.5, 899.5)
    headers = [pydicom.dcmread(file, stop_before_pixels=True) for file in scan.files]
    depths = [float(head.ImagePositionPatient[2]) for head in headers]
    assert depths == sorted(depths)
    assert [head.InstanceNumber for head in headers] != sorted(h.InstanceNumber for h in headers)


@pytest.mark.parametrize("kind", ["dicom", "nifti", "nifti.gz"])
def test_every_corner_of_a_volume_lies_at_its_place(kind, series, tmp_path):
    ending = kind.replace("nifti", "a.nii")
    scan = hshap.read_image(series if kind == "dicom" else made.nifti(tmp_path / ending))
    assert scan.world == "LPS"
    np.testing.assert_allclose(scan.to_world(corners()), placed(made.affine()), atol=1e-4)
    np.testing.assert_array_equal(scan.array[0], made.volume())


def test_volumes_of_microscopes_have_their_spacing(tmp_path):
    for version in ("0.4", "0.5"):
        scan = hshap.read_image(made.ome_zarr(tmp_path / f"{version}.zarr", version=version))
        assert (scan.axes, scan.spacing, scan.world) == ("CZYX", (2.5, 0.8, 0.7), "XYZ")
        np.testing.assert_array_equal(scan.array[0], made.volume())
        np.testing.assert_allclose(scan.to_world((1, 2, 3)), (-31 + 2.1, 12.5 + 1.6, 42.5))
    scan = hshap.read_image(made.ome_tiff(tmp_path / "a.ome.tif"))
    assert scan.axes == "CZYX"
    np.testing.assert_allclose(scan.spacing, (2.5, 0.8, 0.7))
    np.testing.assert_array_equal(scan.array[0], made.volume())
    values = RNG.integers(0, 9, (5, 2, 6, 7)).astype(np.uint16)
    tifffile.imwrite(
        tmp_path / "j.tif",
        values,
        imagej=True,
        resolution=(1 / 0.5, 1 / 0.25),
        metadata={"axes": "ZCYX", "unit": "um", "spacing": 3.0},
    )
    scan = hshap.read_image(tmp_path / "j.tif")
    assert scan.axes == "CZYX"
    np.testing.assert_allclose(scan.spacing, (3e-3, 0.25e-3, 0.5e-3))
    np.testing.assert_array_equal(scan.array, values.transpose(1, 0, 2, 3))


def test_pages_of_a_tiff_are_slices_and_samples_are_channels(tmp_path):
    pages, colours = RNG.integers(0, 9, (5, 6, 7)), RNG.integers(0, 9, (6, 7, 3))
    tifffile.imwrite(tmp_path / "pages.tif", pages.astype(">u2"), photometric="minisblack")
    tifffile.imwrite(tmp_path / "rgb.tif", colours.astype(np.uint8), photometric="rgb")
    scan = hshap.read_image(tmp_path / "pages.tif")
    assert (scan.axes, scan.spacing) == ("CZYX", None)
    np.testing.assert_array_equal(scan.array[0], pages)
    assert scan.array.dtype.isnative
    rgb = hshap.read_image(tmp_path / "rgb.tif")
    assert rgb.axes == "CYX"
    np.testing.assert_array_equal(rgb.array, np.moveaxis(colours, -1, 0))


@pytest.mark.parametrize("name", ["a.npz", "a.npy"])
def test_arrays_of_numpy_are_read_in_any_byte_order(name, tmp_path):
    for shape in ((5, 6), (2, 5, 6)):
        values = RNG.normal(size=shape).astype(">f4")
        if name == "a.npz":
            np.savez_compressed(tmp_path / name, image=values)
        else:
            np.save(tmp_path / name, values)
        scan = hshap.read_image(tmp_path / name)
        assert scan.axes == "CYX"
        assert scan.array.dtype.isnative
        np.testing.assert_array_equal(scan.array.reshape(shape), values)


def test_colours_and_palettes_of_dicom_are_rgb(tmp_path):
    colours = RNG.integers(0, 255, (6, 7, 3)).astype(np.uint8)
    eight = {"BitsAllocated": 8, "BitsStored": 8, "HighBit": 7}
    head = made.dicom_header(
        SamplesPerPixel=3, PhotometricInterpretation="RGB", PlanarConfiguration=0, **eight
    )
    head.Rows, head.Columns, head.PixelData = 6, 7, colours.tobytes()
    made.save_dicom(tmp_path / "rgb.dcm", head)
    scan = hshap.read_image(tmp_path / "rgb.dcm")
    np.testing.assert_array_equal(scan.array, np.moveaxis(colours, -1, 0))
    head = made.dicom_header(PhotometricInterpretation="PALETTE COLOR", **eight)
    tables = RNG.integers(0, 65535, (3, 256)).astype(np.uint16)
    for name, table in zip(("Red", "Green", "Blue"), tables, strict=True):
        setattr(head, f"{name}PaletteColorLookupTableDescriptor", [256, 0, 16])
        setattr(head, f"{name}PaletteColorLookupTableData", table.tobytes())
    index = RNG.integers(0, 255, (6, 8)).astype(np.uint8)
    made.save_dicom(tmp_path / "palette.dcm", head, index)
    scan = hshap.read_image(tmp_path / "palette.dcm")
    np.testing.assert_array_equal(scan.array, tables[:, index])


def test_values_are_shown_by_their_window(series, tmp_path):
    plane = np.array([[0, 100], [200, 300]], np.uint16)
    head = made.dicom_header(PhotometricInterpretation="MONOCHROME1", RescaleSlope="1")
    head.RescaleIntercept, head.WindowCenter, head.WindowWidth = "0", "150.5", "301"
    scan = hshap.read_image(made.save_dicom(tmp_path / "x.dcm", head, plane))
    np.testing.assert_array_equal(scan.array[0], plane)
    np.testing.assert_allclose(scan.shown()[0], 1 - plane / 300, atol=1e-6)  # inverted
    file = next(series.iterdir())
    head = pydicom.dcmread(file)
    stored = pydicom.pixels.apply_modality_lut(head.pixel_array, head)
    expected = pydicom.pixels.apply_windowing(stored, head)
    low, high = -1024.0, 65535 * 0.5 - 1024.0  # the range of 16 bits, rescaled
    ours = hshap.read_image(file).shown()[0]
    np.testing.assert_allclose(ours, (expected - low) / (high - low), atol=2e-3)


SYNTAXES = ("RLELossless", "JPEG2000Lossless", "JPEGLSLossless")
SYNTAXES = (*SYNTAXES, "ImplicitVRLittleEndian", "ExplicitVRBigEndian")


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_every_transfer_syntax_gives_the_same_values(syntax, tmp_path):
    plane = RNG.integers(0, 4000, (64, 64)).astype(np.uint16)
    file, packed = tmp_path / "plain.dcm", tmp_path / "packed.dcm"
    head = pydicom.dcmread(made.save_dicom(file, made.dicom_header(), plane))
    if syntax.endswith("Lossless"):
        try:
            head.compress(getattr(pydicom.uid, syntax), generate_instance_uid=False)
        except (RuntimeError, NotImplementedError):
            pytest.skip(f"no encoder of {syntax} is installed")
        head.save_as(packed)
    else:
        is_big, is_implicit = syntax.endswith("BigEndian"), syntax.startswith("Implicit")
        if is_big:
            head.PixelData = plane.astype(">u2").tobytes()
        head.file_meta.TransferSyntaxUID = getattr(pydicom.uid, syntax)
        options = {"implicit_vr": is_implicit, "little_endian": not is_big}
        pydicom.dcmwrite(packed, head, force_encoding=True, **options)
    np.testing.assert_array_equal(hshap.read_image(file).array, hshap.read_image(packed).array)


def sequence(**facts):
    """Return a sequence of one item with these attributes."""
    out = pydicom.Dataset()
    for name, value in facts.items():
        setattr(out, name, value)
    return [out]


def numbers(values):
    return [f"{value:.10g}" for value in values]


ORDERS = [range(8), range(7, -1, -1), (0, 4, 1, 5, 2, 6, 3, 7), (3, 0, 7, 1, 6, 2, 5, 4)]


@pytest.mark.parametrize("order", ORDERS)
def test_frames_are_sorted_by_their_position(tmp_path, order):
    order, place = np.array(order), made.affine()
    turned = numbers([*made.TURN[:, 0], *made.TURN[:, 1]])
    at = [numbers(place[:3] @ (z, 0, 0, 1)) for z in order]
    stored = np.rint((made.volume()[order] + 1024) * 2.0).astype(np.uint16)
    head = made.dicom_header(SOPClassUID=pydicom.uid.EnhancedCTImageStorage, NumberOfFrames=8)
    head.SharedFunctionalGroupsSequence = sequence(
        PixelMeasuresSequence=sequence(
            PixelSpacing=[*made.SPACING[1:]], SliceThickness=made.SPACING[0]
        ),
        PlaneOrientationSequence=sequence(ImageOrientationPatient=turned),
        PixelValueTransformationSequence=sequence(RescaleSlope="0.5", RescaleIntercept="-1024"),
    )
    head.PerFrameFunctionalGroupsSequence = [
        sequence(PlanePositionSequence=sequence(ImagePositionPatient=one))[0] for one in at
    ]
    del head.RescaleSlope, head.RescaleIntercept
    scan = hshap.read_image(made.save_dicom(tmp_path / "e.dcm", head, stored))
    dose = made.dicom_header(SOPClassUID=pydicom.uid.RTDoseStorage, NumberOfFrames=8)
    dose.ImagePositionPatient, dose.ImageOrientationPatient = at[0], turned
    dose.PixelSpacing, dose.SliceThickness = [*made.SPACING[1:]], made.SPACING[0]
    dose.GridFrameOffsetVector = numbers((order - order[0]) * made.SPACING[0])
    other = hshap.read_image(made.save_dicom(tmp_path / "dose.dcm", dose, stored))
    for each in (scan, other):
        np.testing.assert_array_equal(each.array[0], made.volume())
        np.testing.assert_allclose(each.to_world(corners()), placed(place), atol=1e-4)
    pytest.importorskip("highdicom")
    labels = np.zeros(scan.grid, np.uint8)
    labels[6:8, 29:32, 21:24] = 1
    seg = pydicom.dcmread(hshap.export.write_dicom_seg(tmp_path / "seg.dcm", labels, scan))
    assert len(seg.PerFrameFunctionalGroupsSequence) == 2
    for pixels, group in zip(seg.pixel_array, seg.PerFrameFunctionalGroupsSequence, strict=True):
        (cause,) = group.DerivationImageSequence[0].SourceImageSequence
        z = order[int(cause.ReferencedFrameNumber) - 1]  # the frame at the place, not the z-th one
        found = [float(v) for v in group.PlanePositionSequence[0].ImagePositionPatient]
        np.testing.assert_allclose(found, place[:3] @ (z, 0, 0, 1), atol=1e-6)
        np.testing.assert_array_equal(pixels, labels[z])


def test_a_fourth_axis_is_time_only_with_its_unit(tmp_path):
    values = RNG.normal(size=(5, 6, 7, 3))
    for unit, axes in (("sec", "CTZYX"), (None, "CZYX")):
        image = nibabel.Nifti1Image(values, np.diag([1, 2, 3, 1.0]))
        image.header.set_xyzt_units("mm", unit)
        nibabel.save(image, tmp_path / "four.nii")
        scan = hshap.read_image(tmp_path / "four.nii")
        assert (scan.axes, scan.spacing) == (axes, (3.0, 2.0, 1.0))
        np.testing.assert_allclose(scan.array.reshape(3, 7, 6, 5), values.T)
    clip = RNG.integers(0, 99, (4, 6, 8)).astype(np.uint16)  # of DICOM, without a position
    head = made.dicom_header(NumberOfFrames=4)
    scan = hshap.read_image(made.save_dicom(tmp_path / "us.dcm", head, clip))
    assert (scan.axes, scan.affine) == ("CTYX", None)


def test_nifti_takes_the_sform_then_the_qform(tmp_path):
    image, path = nibabel.Nifti1Image(np.zeros((4, 5, 6)), None), tmp_path / "a.nii"
    image.header.set_xyzt_units("micron")
    image.header.set_zooms((700, 800, 900))
    nibabel.save(image, path)
    scan = hshap.read_image(path)
    assert scan.affine is None
    np.testing.assert_allclose(scan.spacing, (0.9, 0.8, 0.7))
    for form, sides in (("qform", (700, 800, 900)), ("sform", (100, 100, 100))):
        getattr(image.header, f"set_{form}")(np.diag([*sides, 1.0]), code=1)
        nibabel.save(image, path)
        expected = np.array(sides) * (-1, -1, 1) / 1000
        np.testing.assert_allclose(hshap.read_image(path).to_world((1, 1, 1)), expected, rtol=1e-6)


def test_a_plane_of_a_volume_keeps_its_place(series, tmp_path):
    scan = hshap.read_image(series)
    plane = scan.plane(5)
    assert (plane.axes, plane.files) == ("CYX", (scan.files[5],))
    np.testing.assert_allclose(plane.to_world((0, 3, 4)), scan.to_world((5, 3, 4)))
    (tmp_path / "IM0001").write_bytes(plane.files[0].read_bytes())  # known by its content
    alone = hshap.read_image(tmp_path / "IM0001")
    assert (alone.axes, alone.format) == ("CYX", "dicom")
    np.testing.assert_allclose(alone.to_world((0, 3, 4)), plane.to_world((0, 3, 4)), atol=1e-5)


# Bad input: one line each, and no text of a header in it.


def swapped(path, source):
    """Write a file whose data set is in the other byte order than its header says."""
    head = pydicom.dcmread(source)
    head.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRBigEndian
    pydicom.dcmwrite(path, head, implicit_vr=False, little_endian=False, force_encoding=True)
    data = path.read_bytes()
    big = pydicom.uid.ExplicitVRBigEndian.encode()
    little = pydicom.uid.ExplicitVRLittleEndian.encode()
    position = data.index(big)
    fixed = data.replace(big + b"\0" * (len(big) % 2), little + b"\0" * (len(little) % 2), 1)
    # The length of the element and of the group change with the text.
    more = len(fixed) - len(data)
    length = struct.unpack("<H", data[position - 2 : position])[0] + more
    fixed = fixed[: position - 2] + struct.pack("<H", length) + fixed[position:]
    group = struct.unpack("<I", fixed[140:144])[0] + more
    path.write_bytes(fixed[:140] + struct.pack("<I", group) + fixed[144:])
    return path


def series_with(change, *, skip=()):
    """Return a builder of a series whose third file is changed."""

    def build(folder):
        made.dicom_series(folder, skip=skip)
        file = sorted(folder.iterdir())[2]
        head = pydicom.dcmread(file)
        (change(head, folder) or head).save_as(file)
        return folder

    return build


def without_positions(folder):
    for each in made.dicom_series(folder).iterdir():
        head = pydicom.dcmread(each)
        del head.ImagePositionPatient
        head.save_as(each)
    return folder


def moved(head, folder):
    head.ImagePositionPatient = [float(v) + 0.4 for v in head.ImagePositionPatient]


def turned(head, folder):
    head.ImageOrientationPatient = [1, 0, 0, 0, 1, 0]


def elsewhere(head, folder):
    head.FrameOfReferenceUID = "1.2.3.9"


def smaller(head, folder):
    head.Rows, head.PixelData = 30, bytes(2 * 30 * 24)


def of_another_series(head, folder):
    other = made.dicom_series(folder.parent / "other", SeriesInstanceUID="1.2.9")
    (folder / "other.dcm").write_bytes(next(other.iterdir()).read_bytes())


def doubled(head, folder):
    head.save_as(folder / "again.dcm")
    head.SOPInstanceUID = pydicom.uid.generate_uid()


def with_header(pixels=True, **changes):
    """Return a builder of one file with a changed header."""

    def build(path):
        head = made.dicom_header(**changes)
        return made.save_dicom(path, head, np.zeros((8, 8), np.uint16) if pixels else None)

    return build


def in_video_syntax(path):
    head = pydicom.dcmread(with_header()(path))
    head.PixelData = pydicom.encaps.encapsulate([b"\0" * 8])
    head["PixelData"].is_undefined_length = True
    head.file_meta.TransferSyntaxUID = pydicom.uid.MPEG2MPML
    head.save_as(path)
    return path


def bytes_of(build, change):
    """Return a builder of a file whose bytes are changed."""

    def changed(path):
        build(path)
        path.write_bytes(change(path.read_bytes()))
        return path

    return changed


def notes(folder):
    folder.mkdir()
    (folder / "notes.dcm").write_text(made.PATIENT * 20)
    return folder


HUGE = {"Rows": 65535, "Columns": 65535, "NumberOfFrames": 10**6, "PixelData": b"\0\0"}
PDF = {"SOPClassUID": pydicom.uid.EncapsulatedPDFStorage, "EncapsulatedDocument": b"%PDF"}
SINGULAR = np.diag([1.0, 1.0, 1.0, 1.0])[:, [0, 1, 1, 3]]
SHAPE = struct.pack("<8h", 3, *[32000] * 3, 1, 1, 1, 1)
BAD = {  # how a file is made, and what is told of it
    "no position": (without_positions, "lacks the geometry of a slice: it has no ImagePosition"),
    "mixed": (series_with(of_another_series, skip=(0,)), "mixes 2 series"),
    "gap": (
        lambda path: made.dicom_series(path, skip=(4,)),
        "has a gap: between slices 4 and 5 lie 5 mm, elsewhere 2.5 mm",
    ),
    "unequal": (series_with(moved), "unequal distances between slices"),
    "doubled": (series_with(doubled), "several images at one position"),
    "turned": (series_with(turned), "different orientation or spacing"),
    "worlds": (series_with(elsewhere), "has slices in 2 frames of reference"),
    "sizes": (series_with(smaller), "differs in size or colours"),
    "report": (
        with_header(pixels=False, SOPClassUID=pydicom.uid.BasicTextSRStorage),
        "is no image (Basic Text SR Storage)",
    ),
    "pdf": (with_header(pixels=False, **PDF), "is no image (Encapsulated PDF Storage)"),
    "syntax": (in_video_syntax, "transfer syntax that cannot be decoded here: MPEG2"),
    "endianness": (
        lambda path: swapped(path, with_header()(path)),
        "another order (endianness)",
    ),
    "truncated": (bytes_of(with_header(), lambda data: data[:-40]), "is truncated: it has"),
    "headless": (bytes_of(with_header(), lambda data: data[:400]), "bad.dcm"),
    "huge": (
        with_header(pixels=False, **HUGE), "announces 1000000 x 65535 x 65535 x 1 values",
    ),
    "slope": (with_header(RescaleSlope="0"), "has a RescaleSlope or RescaleIntercept of no use"),
    "text": (notes, "is no DICOM file"),
    "singular": (lambda path: made.nifti(path, place=SINGULAR), "has a singular affine (sform)"),
    "nifti cut": (bytes_of(made.nifti, lambda data: data[:-500]), "reading it as NIfTI failed"),
    "nifti header": (bytes_of(made.nifti, lambda data: data[:200]), "reading it as NIfTI failed"),
    "nifti huge": (
        bytes_of(made.nifti, lambda data: data[:40] + SHAPE + data[56:]),
        "announces 32000 x 32000 x 32000 values",
    ),
    "tiff cut": (bytes_of(made.ome_tiff, lambda data: data[:-500]), "reading it as TIFF failed"),
    "zarr": (
        lambda path: made.ome_zarr(path, scale=(1.0, float("nan"), 1, 1)),
        "not one number for each axis",
    ),
}  # fmt: skip
ENDINGS = {"singular": "nii", "tiff cut": "tif", "zarr": "zarr"}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_is_refused_in_one_line_without_a_text_of_its_header(kind, tmp_path):
    build, expected = BAD[kind]
    path = build(tmp_path / f"bad.{ENDINGS.get(kind, 'nii' if 'nifti' in kind else 'dcm')}")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(hshap.FormatError) as caught:
        hshap.read_image(path)
    said = str(caught.value)
    assert expected in said
    assert "\n" not in said
    assert ";" in said
    assert not made.shows_patient("".join(traceback.format_exception(caught.value)))
    assert sorted(tmp_path.rglob("*")) == before


def test_a_scan_holds_no_text_of_a_header(series, tmp_path):
    for path in (
        series,
        made.nifti(tmp_path / "a.nii"),
        made.ome_zarr(tmp_path / "a.zarr"),
        made.ome_tiff(tmp_path / "a.ome.tif"),
    ):
        scan = hshap.read_image(path)
        assert not made.shows_patient(repr(scan) + repr(vars(scan)))


def test_a_deflated_bomb_is_refused(tmp_path):
    head = made.dicom_header()
    path = made.save_dicom(tmp_path / "bomb.dcm", head, np.zeros((8, 8), np.uint16))
    head = pydicom.dcmread(path)
    head.file_meta.TransferSyntaxUID = pydicom.uid.DeflatedExplicitVRLittleEndian
    head.save_as(path)
    assert hshap.read_image(path).grid == (8, 8)  # an honest one is read
    data = path.read_bytes()
    start = data.index(b"DICM") + 4 + 12 + struct.unpack("<I", data[140:144])[0]
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    # Each piece ends at a whole byte and stands by itself, so one is repeated.
    piece = packer.compress(bytes(2**24)) + packer.flush(zlib.Z_FULL_FLUSH)
    path.write_bytes(data[:start] + 33 * piece + packer.flush())
    assert path.stat().st_size < 2**20
    with pytest.raises(hshap.FormatError, match=r"unpacks to more than"):
        hshap.read_image(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize("ending", ["dcm", "nii", "nii.gz", "tif", "npy", "npz", "svs", "other"])
def test_pipes_and_devices_are_refused_without_waiting(ending, tmp_path):
    pipe, device = tmp_path / f"pipe.{ending}", tmp_path / f"device.{ending}"
    os.mkfifo(pipe)
    device.symlink_to("/dev/zero")
    for path in (pipe, device):
        with pytest.raises(hshap.FormatError, match="is no regular file but a pipe or a device"):
            hshap.read_image(path)


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_pickled_arrays_are_never_read(name, tmp_path):
    values = np.array([[{"a": 1}, 2]], dtype=object)
    if name.endswith("z"):
        np.savez(tmp_path / name, values)
    else:
        np.save(tmp_path / name, values, allow_pickle=True)
    with pytest.raises(hshap.FormatError, match="reading it as an array without pickle failed"):
        hshap.read_image(tmp_path / name)


@pytest.mark.parametrize("kind", ["dcm", "nii", "nii.gz", "ome.tif", "npy", "npz", "zarr"])
def test_changed_bytes_are_refused_in_one_line_or_read(kind, series, tmp_path):
    rng, path = np.random.default_rng(7), tmp_path / f"whole.{kind}"
    if kind == "dcm":
        path = min(series.iterdir())
    elif kind.startswith("nii"):
        made.nifti(path)
    elif kind == "ome.tif":
        made.ome_tiff(path)
    elif kind == "zarr":
        made.ome_zarr(path)
    else:
        (np.save if kind == "npy" else np.savez)(path, made.volume()[None])
    files = sorted(each for each in path.rglob("*") if each.is_file()) if kind == "zarr" else [path]
    whole = {file: file.read_bytes() for file in files}
    refused = []
    for _ in range(60):
        file = files[rng.integers(len(files))]
        data = bytearray(whole[file])
        data = data[: rng.integers(1, len(data))] if rng.random() < 0.2 else data
        for place in rng.integers(0, min(len(data), 1500), rng.integers(1, 6)):
            data[place] = rng.integers(0, 256)
        changed = file if kind == "zarr" else tmp_path / f"changed.{kind}"
        changed.write_bytes(data)
        try:
            hshap.read_image(path if kind == "zarr" else changed)
        except hshap.FormatError as error:
            refused.append("".join(traceback.format_exception_only(error)).strip())
            refused.append("".join(traceback.format_exception(error)).replace("\n", " "))
        if kind == "zarr":
            file.write_bytes(whole[file])
    assert refused
    assert not any("\n" in text or made.shows_patient(text) for text in refused)
