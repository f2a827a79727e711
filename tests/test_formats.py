"""Files of hospitals and labs are read with their axes, spacing and place, or refused in one line.

The files are made by the formats' own libraries; places are computed here by their definitions.
"""

from __future__ import annotations

import format_files as made
import numpy as np
import pytest

import hshap
from hshap.images import read_image

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
    scan = read_image(series)
    assert (scan.axes, scan.grid, scan.unit) == ("CZYX", (8, 32, 24), "HU")
    np.testing.assert_array_equal(scan.array[0], made.volume())
    np.testing.assert_allclose(scan.spacing, made.SPACING, rtol=1e-6)
    assert scan.window == (-100.5, 899.5)
    headers = [pydicom.dcmread(file, stop_before_pixels=True) for file in scan.files]
    depths = [float(head.ImagePositionPatient[2]) for head in headers]
    assert depths == sorted(depths)
    assert [head.InstanceNumber for head in headers] != sorted(h.InstanceNumber for h in headers)


@pytest.mark.parametrize("kind", ["dicom", "nifti", "nifti.gz"])
def test_every_corner_lies_at_its_place(kind, series, tmp_path):
    ending = kind.replace("nifti", "a.nii")
    scan = read_image(series if kind == "dicom" else made.nifti(tmp_path / ending))
    assert scan.world == "LPS"
    np.testing.assert_allclose(scan.to_world(corners()), placed(made.affine()), atol=1e-4)
    np.testing.assert_array_equal(scan.array[0], made.volume())


def test_volumes_of_microscopes_have_their_spacing(tmp_path):
    for version in ("0.4", "0.5"):
        scan = read_image(made.ome_zarr(tmp_path / f"{version}.zarr", version=version))
        assert (scan.axes, scan.spacing, scan.world) == ("CZYX", (2.5, 0.8, 0.7), "XYZ")
        np.testing.assert_array_equal(scan.array[0], made.volume())
        np.testing.assert_allclose(scan.to_world((1, 2, 3)), (-31 + 2.1, 12.5 + 1.6, 42.5))
    scan = read_image(made.ome_tiff(tmp_path / "a.ome.tif"))
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
    scan = read_image(tmp_path / "j.tif")
    assert scan.axes == "CZYX"
    np.testing.assert_allclose(scan.spacing, (3e-3, 0.25e-3, 0.5e-3))
    np.testing.assert_array_equal(scan.array, values.transpose(1, 0, 2, 3))


def test_pages_are_slices_and_samples_channels(tmp_path):
    pages, colours = RNG.integers(0, 9, (5, 6, 7)), RNG.integers(0, 9, (6, 7, 3))
    tifffile.imwrite(tmp_path / "pages.tif", pages.astype(">u2"), photometric="minisblack")
    tifffile.imwrite(tmp_path / "rgb.tif", colours.astype(np.uint8), photometric="rgb")
    scan = read_image(tmp_path / "pages.tif")
    assert (scan.axes, scan.spacing) == ("CZYX", None)
    np.testing.assert_array_equal(scan.array[0], pages)
    assert scan.array.dtype.isnative
    rgb = read_image(tmp_path / "rgb.tif")
    assert rgb.axes == "CYX"
    np.testing.assert_array_equal(rgb.array, np.moveaxis(colours, -1, 0))


@pytest.mark.parametrize("name", ["a.npz", "a.npy"])
def test_numpy_files_are_read_in_any_byte_order(name, tmp_path):
    for shape in ((5, 6), (2, 5, 6)):
        values = RNG.normal(size=shape).astype(">f4")
        if name == "a.npz":
            np.savez_compressed(tmp_path / name, image=values)
        else:
            np.save(tmp_path / name, values)
        scan = read_image(tmp_path / name)
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
    scan = read_image(tmp_path / "rgb.dcm")
    np.testing.assert_array_equal(scan.array, np.moveaxis(colours, -1, 0))
    head = made.dicom_header(PhotometricInterpretation="PALETTE COLOR", **eight)
    tables = RNG.integers(0, 65535, (3, 256)).astype(np.uint16)
    for name, table in zip(("Red", "Green", "Blue"), tables, strict=True):
        setattr(head, f"{name}PaletteColorLookupTableDescriptor", [256, 0, 16])
        setattr(head, f"{name}PaletteColorLookupTableData", table.tobytes())
    index = RNG.integers(0, 255, (6, 8)).astype(np.uint8)
    made.save_dicom(tmp_path / "palette.dcm", head, index)
    scan = read_image(tmp_path / "palette.dcm")
    np.testing.assert_array_equal(scan.array, tables[:, index])


def test_values_are_shown_by_their_window(series, tmp_path):
    plane = np.array([[0, 100], [200, 300]], np.uint16)
    head = made.dicom_header(PhotometricInterpretation="MONOCHROME1", RescaleSlope="1")
    head.RescaleIntercept, head.WindowCenter, head.WindowWidth = "0", "150.5", "301"
    scan = read_image(made.save_dicom(tmp_path / "x.dcm", head, plane))
    np.testing.assert_array_equal(scan.array[0], plane)
    np.testing.assert_allclose(scan.shown()[0], 1 - plane / 300, atol=1e-6)  # inverted
    file = next(series.iterdir())
    head = pydicom.dcmread(file)
    stored = pydicom.pixels.apply_modality_lut(head.pixel_array, head)
    expected = pydicom.pixels.apply_windowing(stored, head)
    low, high = -1024.0, 65535 * 0.5 - 1024.0  # the range of 16 bits, rescaled
    ours = read_image(file).shown()[0]
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
    np.testing.assert_array_equal(read_image(file).array, read_image(packed).array)


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
    scan = read_image(made.save_dicom(tmp_path / "e.dcm", head, stored))
    dose = made.dicom_header(SOPClassUID=pydicom.uid.RTDoseStorage, NumberOfFrames=8)
    dose.ImagePositionPatient, dose.ImageOrientationPatient = at[0], turned
    dose.PixelSpacing, dose.SliceThickness = [*made.SPACING[1:]], made.SPACING[0]
    dose.GridFrameOffsetVector = numbers((order - order[0]) * made.SPACING[0])
    other = read_image(made.save_dicom(tmp_path / "dose.dcm", dose, stored))
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


def test_a_fourth_axis_is_time_by_its_unit(tmp_path):
    values = RNG.normal(size=(5, 6, 7, 3))
    for unit, axes in (("sec", "CTZYX"), (None, "CZYX")):
        image = nibabel.Nifti1Image(values, np.diag([1, 2, 3, 1.0]))
        image.header.set_xyzt_units("mm", unit)
        nibabel.save(image, tmp_path / "four.nii")
        scan = read_image(tmp_path / "four.nii")
        assert (scan.axes, scan.spacing) == (axes, (3.0, 2.0, 1.0))
        np.testing.assert_allclose(scan.array.reshape(3, 7, 6, 5), values.T)
    clip = RNG.integers(0, 99, (4, 6, 8)).astype(np.uint16)  # of DICOM, without a position
    head = made.dicom_header(NumberOfFrames=4)
    scan = read_image(made.save_dicom(tmp_path / "us.dcm", head, clip))
    assert (scan.axes, scan.affine) == ("CTYX", None)


def test_nifti_takes_the_sform_then_the_qform(tmp_path):
    image, path = nibabel.Nifti1Image(np.zeros((4, 5, 6)), None), tmp_path / "a.nii"
    image.header.set_xyzt_units("micron")
    image.header.set_zooms((700, 800, 900))
    nibabel.save(image, path)
    scan = read_image(path)
    assert scan.affine is None
    np.testing.assert_allclose(scan.spacing, (0.9, 0.8, 0.7))
    for form, sides in (("qform", (700, 800, 900)), ("sform", (100, 100, 100))):
        getattr(image.header, f"set_{form}")(np.diag([*sides, 1.0]), code=1)
        nibabel.save(image, path)
        expected = np.array(sides) * (-1, -1, 1) / 1000
        np.testing.assert_allclose(read_image(path).to_world((1, 1, 1)), expected, rtol=1e-6)


def test_a_plane_of_a_volume_keeps_its_place(series, tmp_path):
    scan = read_image(series)
    plane = scan.plane(5)
    assert (plane.axes, plane.files) == ("CYX", (scan.files[5],))
    np.testing.assert_allclose(plane.to_world((0, 3, 4)), scan.to_world((5, 3, 4)))
    (tmp_path / "IM0001").write_bytes(plane.files[0].read_bytes())  # known by its content
    alone = read_image(tmp_path / "IM0001")
    assert (alone.axes, alone.format) == ("CYX", "dicom")
    np.testing.assert_allclose(alone.to_world((0, 3, 4)), plane.to_world((0, 3, 4)), atol=1e-5)


def test_pictures_are_read_as_the_command_reads_them(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    values = np.random.default_rng(0).integers(0, 256, (4, 6, 3), np.uint8)
    pillow.fromarray(values).save(tmp_path / "a.png")
    scan = hshap.images.read_image(tmp_path / "a.png")
    assert (scan.axes, scan.format, scan.files) == ("CYX", "png", (tmp_path / "a.png",))
    np.testing.assert_array_equal(scan.array, np.moveaxis(values, -1, 0))
    np.testing.assert_allclose(scan.shown() * 255, scan.array, atol=1e-4)
    frames = [pillow.new("L", (6, 4), value) for value in (0, 255)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert hshap.images.read_image(tmp_path / "a.gif", frame=1).array.min() == 255
    with pytest.raises(hshap.errors.FormatError, match="has 2 frames"):
        hshap.images.read_image(tmp_path / "a.gif")
