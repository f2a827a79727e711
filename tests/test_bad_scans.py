"""Bad files of hospitals and labs are refused in one line, which holds no text of a header."""

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
for module in ("nibabel", "zarr", "tifffile"):
    pytest.importorskip(module)


@pytest.fixture(scope="module")
def series(tmp_path_factory):
    return made.dicom_series(tmp_path_factory.mktemp("formats") / "series")


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


def unplaced(head, folder):
    del head.ImagePositionPatient


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
    "no position": (series_with(unplaced), "lacks the geometry of a slice: it has no Image"),
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
def test_a_bad_file_is_refused_in_one_line(kind, tmp_path):
    build, expected = BAD[kind]
    path = build(tmp_path / f"bad.{ENDINGS.get(kind, 'nii' if 'nifti' in kind else 'dcm')}")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(hshap.FormatError) as caught:
        hshap.images.read_image(path)
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
        scan = hshap.images.read_image(path)
        assert not made.shows_patient(repr(scan) + repr(vars(scan)))


def test_a_deflated_bomb_is_refused(tmp_path):
    head = made.dicom_header()
    path = made.save_dicom(tmp_path / "bomb.dcm", head, np.zeros((8, 8), np.uint16))
    head = pydicom.dcmread(path)
    head.file_meta.TransferSyntaxUID = pydicom.uid.DeflatedExplicitVRLittleEndian
    head.save_as(path)
    assert hshap.images.read_image(path).grid == (8, 8)  # an honest one is read
    data = path.read_bytes()
    start = data.index(b"DICM") + 4 + 12 + struct.unpack("<I", data[140:144])[0]
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    # Each piece ends at a whole byte and stands by itself, so one is repeated.
    piece = packer.compress(bytes(2**24)) + packer.flush(zlib.Z_FULL_FLUSH)
    path.write_bytes(data[:start] + 33 * piece + packer.flush())
    assert path.stat().st_size < 2**20
    with pytest.raises(hshap.FormatError, match=r"unpacks to more than"):
        hshap.images.read_image(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize("ending", ["dcm", "nii", "nii.gz", "tif", "npy", "npz", "svs", "other"])
def test_pipes_and_devices_are_refused_without_waiting(ending, tmp_path):
    pipe, device = tmp_path / f"pipe.{ending}", tmp_path / f"device.{ending}"
    os.mkfifo(pipe)
    device.symlink_to("/dev/zero")
    for path in (pipe, device):
        with pytest.raises(hshap.FormatError, match="is no regular file but a pipe or a device"):
            hshap.images.read_image(path)


def test_pickled_arrays_are_never_read(tmp_path):
    values = np.array([[{"a": 1}, 2]], dtype=object)
    np.savez(tmp_path / "a.npz", values)
    np.save(tmp_path / "a.npy", values, allow_pickle=True)
    for path in tmp_path.iterdir():
        with pytest.raises(hshap.FormatError, match="as an array without pickle failed"):
            hshap.images.read_image(path)


@pytest.mark.parametrize("kind", ["dcm", "nii", "nii.gz", "ome.tif", "npy", "npz", "zarr"])
def test_changed_bytes_are_refused_or_read(kind, series, tmp_path):
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
            hshap.images.read_image(path if kind == "zarr" else changed)
        except hshap.FormatError as error:
            refused.append("".join(traceback.format_exception_only(error)).strip())
            refused.append("".join(traceback.format_exception(error)).replace("\n", " "))
        if kind == "zarr":
            file.write_bytes(whole[file])
    assert refused
    assert not any("\n" in text or made.shows_patient(text) for text in refused)
