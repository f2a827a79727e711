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
def test_every_corner_of_a_medical_volume_lies_at_its_place_in_lps(kind, series, tmp_path):
    if kind == "dicom":
        scan = hshap.read_image(series)
    else:
        scan = hshap.read_image(made.nifti(tmp_path / kind.replace("nifti", "a.nii")))
    assert scan.world == "LPS"
    np.testing.assert_allclose(scan.to_world(corners()), placed(made.affine()), atol=1e-4)
    np.testing.assert_array_equal(scan.array[0], made.volume())


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_an_ome_zarr_volume_has_its_scale_and_translation(version, tmp_path):
    scan = hshap.read_image(made.ome_zarr(tmp_path / "a.zarr", version=version))
    assert (scan.axes, scan.spacing, scan.world) == ("CZYX", (2.5, 0.8, 0.7), "XYZ")
    np.testing.assert_array_equal(scan.array[0], made.volume())
    np.testing.assert_allclose(scan.to_world((1, 2, 3)), (-31 + 2.1, 12.5 + 1.6, 42.5))


def test_an_ome_tiff_volume_has_its_spacing(tmp_path):
    scan = hshap.read_image(made.ome_tiff(tmp_path / "a.ome.tif"))
    assert scan.axes == "CZYX"
    np.testing.assert_allclose(scan.spacing, (2.5, 0.8, 0.7))
    np.testing.assert_array_equal(scan.array[0], made.volume())


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


def test_an_imagej_stack_has_its_spacing(tmp_path):
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


@pytest.mark.parametrize(("shape", "axes"), [((5, 6), "CYX"), ((2, 5, 6), "CYX")])
@pytest.mark.parametrize("packed", [False, True])
def test_arrays_of_numpy_are_read_in_any_byte_order(shape, axes, packed, tmp_path):
    values = RNG.normal(size=shape).astype(">f4")
    path = tmp_path / ("a.npz" if packed else "a.npy")
    np.savez_compressed(path, image=values) if packed else np.save(path, values)
    scan = hshap.read_image(path)
    assert scan.axes == axes
    assert scan.array.dtype.isnative
    np.testing.assert_array_equal(scan.array.reshape(shape), values)


def test_a_dicom_file_without_an_ending_is_known_by_its_content(series, tmp_path):
    file = next(series.iterdir())
    (tmp_path / "IM0001").write_bytes(file.read_bytes())
    scan = hshap.read_image(tmp_path / "IM0001")
    assert (scan.axes, scan.format) == ("CYX", "dicom")
    assert scan.affine is not None


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


def test_monochrome_1_is_shown_inverted_and_its_values_are_kept(tmp_path):
    plane = np.array([[0, 100], [200, 300]], np.uint16)
    head = made.dicom_header(PhotometricInterpretation="MONOCHROME1", RescaleSlope="1")
    head.RescaleIntercept, head.WindowCenter, head.WindowWidth = "0", "150.5", "301"
    scan = hshap.read_image(made.save_dicom(tmp_path / "x.dcm", head, plane))
    np.testing.assert_array_equal(scan.array[0], plane)
    np.testing.assert_allclose(scan.shown()[0], 1 - plane / 300, atol=1e-6)


def test_values_are_shown_by_the_window_as_pydicom_shows_them(series):
    file = next(series.iterdir())
    head = pydicom.dcmread(file)
    stored = pydicom.pixels.apply_modality_lut(head.pixel_array, head)
    expected = pydicom.pixels.apply_windowing(stored, head)
    low, high = -1024.0, 65535 * 0.5 - 1024.0  # the range of 16 bits, rescaled
    ours = hshap.read_image(file).shown()[0]
    np.testing.assert_allclose(ours, (expected - low) / (high - low), atol=2e-3)


@pytest.mark.parametrize("syntax", ["RLELossless", "JPEG2000Lossless", "JPEGLSLossless"])
def test_compressed_files_have_the_values_of_plain_ones(syntax, tmp_path):
    plane = RNG.integers(0, 4000, (64, 64)).astype(np.uint16)
    file = made.save_dicom(tmp_path / "plain.dcm", made.dicom_header(), plane)
    head = pydicom.dcmread(file)
    try:
        head.compress(getattr(pydicom.uid, syntax), generate_instance_uid=False)
    except (RuntimeError, NotImplementedError):
        pytest.skip(f"no encoder of {syntax} is installed")
    head.save_as(tmp_path / "packed.dcm")
    plain, packed = hshap.read_image(file), hshap.read_image(tmp_path / "packed.dcm")
    np.testing.assert_array_equal(plain.array, packed.array)


@pytest.mark.parametrize("syntax", ["ImplicitVRLittleEndian", "ExplicitVRBigEndian"])
def test_every_plain_transfer_syntax_gives_the_same_values(syntax, series, tmp_path):
    file = min(series.iterdir())
    head = pydicom.dcmread(file)
    if syntax.endswith("BigEndian"):
        head.PixelData = np.frombuffer(head.PixelData, "<u2").astype(">u2").tobytes()
    head.file_meta.TransferSyntaxUID = getattr(pydicom.uid, syntax)
    big = syntax.endswith("BigEndian")
    pydicom.dcmwrite(
        tmp_path / "b.dcm",
        head,
        implicit_vr=syntax.startswith("Implicit"),
        little_endian=not big,
        force_encoding=True,
    )
    np.testing.assert_array_equal(
        hshap.read_image(file).array, hshap.read_image(tmp_path / "b.dcm").array
    )


@pytest.mark.parametrize("order", [range(8), range(7, -1, -1), (0, 4, 1, 5, 2, 6, 3, 7), "any"])
def test_a_multi_frame_file_is_sorted_by_the_position_of_its_frames(tmp_path, order):
    order = RNG.permutation(8) if order == "any" else np.array(order)
    head = made.dicom_header(SOPClassUID=pydicom.uid.EnhancedCTImageStorage, NumberOfFrames=8)
    place, turned = made.affine(), [*made.TURN[:, 0], *made.TURN[:, 1]]
    shared, frames = pydicom.Dataset(), []
    shared.PixelMeasuresSequence = [pydicom.Dataset()]
    shared.PixelMeasuresSequence[0].PixelSpacing = [*made.SPACING[1:]]
    shared.PixelMeasuresSequence[0].SliceThickness = made.SPACING[0]
    shared.PlaneOrientationSequence = [pydicom.Dataset()]
    shared.PlaneOrientationSequence[0].ImageOrientationPatient = [f"{v:.10g}" for v in turned]
    shared.PixelValueTransformationSequence = [pydicom.Dataset()]
    shared.PixelValueTransformationSequence[0].RescaleSlope = "0.5"
    shared.PixelValueTransformationSequence[0].RescaleIntercept = "-1024"
    for z in order:
        frame = pydicom.Dataset()
        frame.PlanePositionSequence = [pydicom.Dataset()]
        frame.PlanePositionSequence[0].ImagePositionPatient = [
            f"{v:.10g}" for v in place[:3] @ (z, 0, 0, 1)
        ]
        frames.append(frame)
    head.SharedFunctionalGroupsSequence = [shared]
    head.PerFrameFunctionalGroupsSequence = frames
    del head.RescaleSlope, head.RescaleIntercept
    stored = np.rint((made.volume()[order] + 1024) * 2.0).astype(np.uint16)
    scan = hshap.read_image(made.save_dicom(tmp_path / "e.dcm", head, stored))
    np.testing.assert_array_equal(scan.array[0], made.volume())
    np.testing.assert_allclose(scan.to_world(corners()), placed(place), atol=1e-4)
    pytest.importorskip("highdicom")
    labels = np.zeros(scan.grid, np.uint8)
    labels[6:8, 29:32, 21:24] = 1
    seg = pydicom.dcmread(hshap.export.write_dicom_seg(tmp_path / "seg.dcm", labels, scan))
    assert len(seg.PerFrameFunctionalGroupsSequence) == 2
    for pixels, group in zip(seg.pixel_array, seg.PerFrameFunctionalGroupsSequence, strict=True):
        (cause,) = group.DerivationImageSequence[0].SourceImageSequence
        z = order[int(cause.ReferencedFrameNumber) - 1]  # the frame at the place, not the z-th one
        at = [float(v) for v in group.PlanePositionSequence[0].ImagePositionPatient]
        np.testing.assert_allclose(at, place[:3] @ (z, 0, 0, 1), atol=1e-6)
        np.testing.assert_array_equal(pixels, labels[z])


@pytest.mark.parametrize("order", [range(8), range(7, -1, -1), (3, 0, 7, 1, 6, 2, 5, 4)])
def test_frames_of_a_dose_lie_at_their_offsets(tmp_path, order):
    order, place = np.array(order), made.affine()
    head = made.dicom_header(SOPClassUID=pydicom.uid.RTDoseStorage, NumberOfFrames=8)
    head.ImagePositionPatient = [f"{v:.10g}" for v in place[:3] @ (order[0], 0, 0, 1)]
    head.ImageOrientationPatient = [f"{v:.10g}" for v in (*made.TURN[:, 0], *made.TURN[:, 1])]
    head.PixelSpacing, head.SliceThickness = [*made.SPACING[1:]], made.SPACING[0]
    head.GridFrameOffsetVector = [f"{v:.10g}" for v in (order - order[0]) * made.SPACING[0]]
    stored = np.rint((made.volume()[order] + 1024) * 2.0).astype(np.uint16)
    scan = hshap.read_image(made.save_dicom(tmp_path / "dose.dcm", head, stored))
    np.testing.assert_array_equal(scan.array[0], made.volume())
    np.testing.assert_allclose(scan.to_world(corners()), placed(place), atol=1e-4)


def test_frames_without_a_position_follow_each_other_in_time(tmp_path):
    clip = RNG.integers(0, 99, (4, 6, 8)).astype(np.uint16)
    head = made.dicom_header(NumberOfFrames=4)
    scan = hshap.read_image(made.save_dicom(tmp_path / "us.dcm", head, clip))
    assert (scan.axes, scan.affine) == ("CTYX", None)


def test_a_fourth_axis_of_nifti_is_time_with_a_unit_of_time_and_channels_without(tmp_path):
    values = RNG.normal(size=(5, 6, 7, 3))
    for unit, axes in (("sec", "CTZYX"), (None, "CZYX")):
        image = nibabel.Nifti1Image(values, np.diag([1, 2, 3, 1.0]))
        image.header.set_xyzt_units("mm", unit)
        nibabel.save(image, tmp_path / "four.nii")
        scan = hshap.read_image(tmp_path / "four.nii")
        assert (scan.axes, scan.spacing) == (axes, (3.0, 2.0, 1.0))
        np.testing.assert_allclose(scan.array.reshape(3, 7, 6, 5), values.T)


def test_nifti_takes_the_sform_then_the_qform_then_no_place_and_units_count(tmp_path):
    image = nibabel.Nifti1Image(np.zeros((4, 5, 6)), None)
    image.header.set_xyzt_units("micron")
    image.header.set_zooms((700, 800, 900))
    nibabel.save(image, tmp_path / "none.nii")
    scan = hshap.read_image(tmp_path / "none.nii")
    assert scan.affine is None
    np.testing.assert_allclose(scan.spacing, (0.9, 0.8, 0.7))
    image.header.set_qform(np.diag([700, 800, 900, 1.0]), code=1)
    nibabel.save(image, tmp_path / "q.nii")
    np.testing.assert_allclose(
        hshap.read_image(tmp_path / "q.nii").to_world((1, 1, 1)), (-0.7, -0.8, 0.9), rtol=1e-6
    )
    image.header.set_sform(np.diag([100, 100, 100, 1.0]), code=2)
    nibabel.save(image, tmp_path / "s.nii")
    np.testing.assert_allclose(
        hshap.read_image(tmp_path / "s.nii").to_world((1, 1, 1)), (-0.1, -0.1, 0.1), rtol=1e-6
    )


def test_a_plane_of_a_volume_keeps_its_place_and_its_file(series):
    scan = hshap.read_image(series)
    plane = scan.plane(5)
    assert (plane.axes, plane.files) == ("CYX", (scan.files[5],))
    np.testing.assert_allclose(plane.to_world((0, 3, 4)), scan.to_world((5, 3, 4)))
    alone = hshap.read_image(plane.files[0])
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


def bad_files(kind, tmp_path):  # noqa: C901, PLR0911, PLR0912, PLR0915, a list of cases
    """Make a bad file of a kind, and return its path."""
    folder, file = tmp_path / "bad", tmp_path / "bad.dcm"
    if kind == "missing geometry":
        made.dicom_series(folder)
        for each in folder.iterdir():
            head = pydicom.dcmread(each)
            del head.ImagePositionPatient
            head.save_as(each)
        return folder
    if kind == "mixed series":
        made.dicom_series(folder, skip=(0,))
        other = made.dicom_series(tmp_path / "o", SeriesInstanceUID="1.2.9")
        (folder / "other.dcm").write_bytes(next(other.iterdir()).read_bytes())
        return folder
    if kind == "gap":
        return made.dicom_series(folder, skip=(4,))
    if kind in {"unequal", "doubled", "turned", "sizes", "worlds"}:
        made.dicom_series(folder)
        last = sorted(folder.iterdir())[2]
        head = pydicom.dcmread(last)
        if kind == "turned":
            head.ImageOrientationPatient = [1, 0, 0, 0, 1, 0]
        elif kind == "worlds":
            head.FrameOfReferenceUID = "1.2.3.9"
        elif kind == "sizes":
            save = np.zeros((30, 24), np.uint16)
            made.save_dicom(last, head, save)
            return folder
        elif kind == "doubled":
            head.SOPInstanceUID = pydicom.uid.generate_uid()
            head.save_as(folder / "again.dcm")
            return folder
        else:
            head.ImagePositionPatient = [float(v) + 0.4 for v in head.ImagePositionPatient]
        head.save_as(last)
        return folder
    head = made.dicom_header()
    plane = np.zeros((8, 8), np.uint16)
    if kind == "report":
        head.SOPClassUID = pydicom.uid.BasicTextSRStorage
        return made.save_dicom(file, head)
    if kind == "pdf":
        head.SOPClassUID, head.EncapsulatedDocument = pydicom.uid.EncapsulatedPDFStorage, b"%PDF"
        return made.save_dicom(file, head)
    if kind == "syntax":
        made.save_dicom(file, head, plane)
        head = pydicom.dcmread(file)
        head.PixelData = pydicom.encaps.encapsulate([b"\0" * 8])
        head["PixelData"].is_undefined_length = True
        head.file_meta.TransferSyntaxUID = pydicom.uid.MPEG2MPML
        head.save_as(file)
        return file
    if kind in {"endianness", "truncated", "headless"}:
        made.save_dicom(file, head, plane)
        if kind == "endianness":
            return swapped(file, file)
        data = file.read_bytes()
        file.write_bytes(data[:-40] if kind == "truncated" else data[:400])
        return file
    if kind == "huge":
        head.Rows = head.Columns = 65535
        head.NumberOfFrames, head.PixelData = 10**6, b"\0\0"
        return made.save_dicom(file, head)
    if kind == "slope":
        head.RescaleSlope = "0"
        return made.save_dicom(file, head, plane)
    if kind == "text":
        folder.mkdir()
        (folder / "notes.dcm").write_text(made.PATIENT * 20)
        return folder
    nii = tmp_path / "bad.nii"
    if kind == "singular":
        place = np.diag([1.0, 1.0, 1.0, 1.0])
        place[:3, 2] = place[:3, 1]
        return made.nifti(nii, place=place)
    made.nifti(nii)
    data = nii.read_bytes()
    if kind == "nifti truncated":
        nii.write_bytes(data[:-500])
    elif kind == "nifti header":
        nii.write_bytes(data[:200])
    elif kind == "nifti huge":
        nii.write_bytes(data[:40] + struct.pack("<8h", 3, *[32000] * 3, 1, 1, 1, 1) + data[56:])
    elif kind == "tiff truncated":
        path = made.ome_tiff(tmp_path / "bad.tif")
        path.write_bytes(path.read_bytes()[:-500])
        return path
    elif kind == "zarr transform":
        return made.ome_zarr(tmp_path / "bad.zarr", scale=(1.0, float("nan"), 1, 1))
    return nii


BAD = {
    "missing geometry": "lacks the geometry of a slice: it has no ImagePositionPatient",
    "mixed series": "mixes 2 series",
    "gap": "has a gap: between slices 4 and 5 lie 5 mm, elsewhere 2.5 mm",
    "unequal": "unequal distances between slices",
    "doubled": "several images at one position",
    "turned": "different orientation or spacing",
    "worlds": "has slices in 2 frames of reference",
    "sizes": "differs in size or colours",
    "report": "is no image (Basic Text SR Storage)",
    "pdf": "is no image (Encapsulated PDF Storage)",
    "syntax": "transfer syntax that cannot be decoded here: MPEG2",
    "endianness": "another order (endianness)",
    "truncated": "is truncated: it has",
    "headless": "bad.dcm",
    "huge": "announces 1000000 x 65535 x 65535 x 1 values",
    "slope": "has a RescaleSlope or RescaleIntercept of no use",
    "text": "is no DICOM file",
    "singular": "has a singular affine (sform)",
    "nifti truncated": "reading it as NIfTI failed",
    "nifti header": "reading it as NIfTI failed",
    "nifti huge": "announces 32000 x 32000 x 32000 values",
    "tiff truncated": "reading it as TIFF failed",
    "zarr transform": "not one number for each axis",
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_is_refused_in_one_line_without_a_text_of_its_header(kind, tmp_path):
    path = bad_files(kind, tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(hshap.FormatError) as caught:
        hshap.read_image(path)
    said = str(caught.value)
    assert BAD[kind] in said
    assert "\n" not in said
    assert ";" in said
    assert not made.shows_patient("".join(traceback.format_exception(caught.value)))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("kind", ["dicom", "nifti", "ome-zarr", "tiff"])
def test_a_scan_holds_no_text_of_a_header(kind, series, tmp_path):
    path = {
        "dicom": lambda: series,
        "nifti": lambda: made.nifti(tmp_path / "a.nii"),
        "ome-zarr": lambda: made.ome_zarr(tmp_path / "a.zarr"),
        "tiff": lambda: made.ome_tiff(tmp_path / "a.ome.tif"),
    }[kind]()
    scan = hshap.read_image(path)
    assert not made.shows_patient(repr(scan))
    assert not made.shows_patient(repr(vars(scan)))


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
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_pipes_and_devices_are_refused_without_waiting(kind, ending, tmp_path):
    path = tmp_path / f"a.{ending}"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
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
