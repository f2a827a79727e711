"""Files of hospitals and labs, made by the formats' own libraries, with a patient planted in them.

The object is a box of bright voxels at a known place, so a reader's findings can be compared.
"""

from __future__ import annotations

import json

import numpy as np

PATIENT, NUMBER = "Zebrowski^Planted", "MRN-4711-PLANT"
"""A name and an id in every header: no output of hshap may show them."""

SLICES, ROWS, COLUMNS = 8, 32, 24
OBJECT = (slice(3, 6), slice(10, 18), slice(12, 18))
"""The object in z, y and x."""

SPACING = (2.5, 0.8, 0.7)
ORIGIN = (-31.0, 12.5, 40.0)
# A volume that is turned in the room, so that no axis of the array is one of the world.
TURN = np.linalg.qr(np.array([[0.9, 0.2, 0.1], [-0.1, 0.95, 0.3], [0.0, -0.3, 0.9]]))[0]
TURN = TURN * np.sign(np.diag(TURN))


def volume():
    """Return values like those of CT: air around, and a bright object."""
    out = np.random.default_rng(0).integers(-40, 40, (SLICES, ROWS, COLUMNS)).astype(np.int16)
    out[OBJECT] += 900
    return out


def affine():
    """Return the place in LPS, from `(z, y, x, 1)`, by the definition of DICOM."""
    across, down = TURN[:, 0], TURN[:, 1]
    out = np.eye(4)
    out[:3, 0] = np.cross(across, down) * SPACING[0]
    out[:3, 1] = down * SPACING[1]
    out[:3, 2] = across * SPACING[2]
    out[:3, 3] = ORIGIN
    return out


def dicom_header(**changes):
    """Return a header of a CT slice without pixels."""
    import pydicom
    from pydicom.dataset import FileMetaDataset

    head = pydicom.Dataset()
    head.file_meta = FileMetaDataset()
    head.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    head.SOPClassUID = pydicom.uid.CTImageStorage
    head.SOPInstanceUID = pydicom.uid.generate_uid()
    head.StudyInstanceUID, head.SeriesInstanceUID = "1.2.3.4.5", "1.2.3.4.5.6"
    head.FrameOfReferenceUID = "1.2.3.4.5.7"
    head.PatientName, head.PatientID = PATIENT, NUMBER
    head.PatientBirthDate, head.PatientSex, head.StudyID = "19500102", "O", "1"
    head.StudyDate, head.StudyTime, head.AccessionNumber = "20200101", "101010", NUMBER
    head.ReferringPhysicianName, head.PositionReferenceIndicator = PATIENT, ""
    head.StudyDescription, head.SeriesDescription = PATIENT, f"{PATIENT} {NUMBER}"
    head.Modality, head.Manufacturer, head.SeriesNumber, head.Laterality = "CT", "made", 1, ""
    head.ImageType = ["ORIGINAL", "PRIMARY", "AXIAL"]
    head.AcquisitionNumber, head.KVP, head.InstanceNumber = 1, "120", 1
    head.SamplesPerPixel, head.PhotometricInterpretation = 1, "MONOCHROME2"
    head.BitsAllocated = head.BitsStored = 16
    head.HighBit, head.PixelRepresentation = 15, 0
    head.RescaleSlope, head.RescaleIntercept, head.RescaleType = "0.5", "-1024", "HU"
    head.WindowCenter, head.WindowWidth = "400", "1001"
    head.ImageComments = f"{PATIENT} {NUMBER}"
    for name, value in changes.items():
        setattr(head, name, value)
    return head


def save_dicom(path, head, pixels=None):
    """Write a header, with pixels `(rows, columns)` or none."""
    import pydicom

    if pixels is not None:
        head.Rows, head.Columns = pixels.shape[-2:]
        head.PixelData = pixels.tobytes()
        head["PixelData"].VR = "OW" if head.BitsAllocated == 16 else "OB"
    pydicom.dcmwrite(path, head, enforce_file_format=True)
    return path


def dicom_series(folder, *, values=None, skip=(), shift=0.0, digits=10, **changes):
    """Write a CT series, one file for each slice, with names and numbers in another order.

    `shift` moves each slice along its rows by millimetres, as a tilted gantry does; `digits` are
    those of positions.
    """
    folder.mkdir(parents=True, exist_ok=True)
    values = volume() if values is None else values
    place = affine()
    place[:3, 0] += TURN[:, 1] * shift
    turned = [*TURN[:, 0], *TURN[:, 1]]
    for z, plane in enumerate(values):
        if z in skip:
            continue
        head = dicom_header(**changes)
        head.InstanceNumber = 1 + (z * 5) % SLICES
        head.ImagePositionPatient = [f"{v:.{digits}g}" for v in place[:3] @ (z, 0, 0, 1)]
        head.ImageOrientationPatient = [f"{v:.10g}" for v in turned]
        head.PixelSpacing = [SPACING[1], SPACING[2]]
        head.SliceThickness = SPACING[0]
        stored = np.rint((plane.astype(float) + 1024) / 0.5).astype(np.uint16)
        # Names by a shuffled number: only the position tells the order.
        save_dicom(folder / f"im{(z * 3) % SLICES:02d}.dcm", head, stored)
    return folder


def nifti(path, *, values=None, place=None, code=1, dtype=np.int16):
    """Write a NIfTI volume; `place` is its affine in RAS from `(x, y, z, 1)`."""
    import nibabel

    values = volume() if values is None else values
    ras = np.diag([-1.0, -1.0, 1.0, 1.0]) @ affine()[:, [2, 1, 0, 3]] if place is None else place
    image = nibabel.Nifti1Image(values.T.astype(dtype), None)
    image.header.set_xyzt_units("mm")
    image.header.set_sform(ras, code=code)
    if place is None:
        image.header.set_qform(ras, code=code)
    image.header["descrip"] = PATIENT.encode()
    image.header["db_name"] = NUMBER.encode()
    nibabel.save(image, path)
    return path


def ome_zarr(path, *, values=None, version="0.4", scale=(1.0, 2.5, 0.8, 0.7)):
    """Write an image of OME-Zarr with the axes c, z, y and x in millimetres, and two levels."""
    import zarr

    values = (volume() if values is None else values)[None]
    form = 2 if version == "0.4" else 3
    group = zarr.open_group(str(path), mode="w", zarr_format=form)
    for level, step in enumerate((1, 2)):
        data = values[:, :, ::step, ::step]
        chunks = (1, *data.shape[1:])
        group.create_array(str(level), data=data, chunks=chunks)
    moves = [
        [
            {"type": "scale", "scale": [*scale[:2], scale[2] * step, scale[3] * step]},
            {"type": "translation", "translation": [0.0, 40.0, 12.5, -31.0]},
        ]
        for step in (1, 2)
    ]
    axes = [{"name": "c", "type": "channel"}] + [
        {"name": name, "type": "space", "unit": "millimeter"} for name in "zyx"
    ]
    scales = [
        {
            "version": version,
            "name": PATIENT,
            "axes": axes,
            "datasets": [
                {"path": str(level), "coordinateTransformations": moves[level]} for level in (0, 1)
            ],
        }
    ]
    inner = {"multiscales": scales, "omero": {"name": NUMBER}}
    group.attrs.update(inner if form == 2 else {"ome": {"version": version, **inner}})
    return path


def ome_tiff(path, *, values=None):
    """Write an OME-TIFF volume with its spacing."""
    import tifffile

    values = volume() if values is None else values
    facts = {
        "axes": "ZYX",
        "Name": PATIENT,
        "Description": NUMBER,
        "PhysicalSizeX": 700.0,
        "PhysicalSizeXUnit": "µm",
        "PhysicalSizeY": 800.0,
        "PhysicalSizeYUnit": "µm",
        "PhysicalSizeZ": 2500.0,
        "PhysicalSizeZUnit": "µm",
    }
    tifffile.imwrite(path, values, ome=True, metadata=facts, photometric="minisblack")
    return path


def mask():
    """Return the object as a mask of the volume."""
    out = np.zeros((SLICES, ROWS, COLUMNS), bool)
    out[OBJECT] = True
    return out


def shows_patient(data):
    """Return whether a text or bytes hold the planted name or id, in any case or encoding."""
    raw = data if isinstance(data, bytes) else str(data).encode()
    low = raw.lower()
    words = [word.encode().lower() for word in ("zebrowski", NUMBER)]
    return any(
        form in low for word in words for form in (word, word.decode().encode("utf-16-le"))
    ) or any(json.dumps(word.decode())[1:-1].encode() in low for word in words)
