"""Explanations as files and objects of other programs, and as a page for a browser.

Regions become COCO, GeoJSON for QuPath, or documents of Label Studio, CVAT, Datumaro and FiftyOne;
maps become PNG or TIFF, tables pandas, arrays xarray or input of shap's own plots; `page` makes an
HTML file. Label maps and maps go back to the place of their scan as DICOM, NIfTI, OME-Zarr and
OME-TIFF. Regions are exact: boxes are rectangles, any other form is a
polygon along the edges of its pixels. Coordinates are pixels of the original image, with the origin
at its top left corner: `Explanation.placement` says where the explained pixels lie in it. Nothing
here calls a model.

>>> from hshap import demo, export
>>> len(export.coco({"cell.png": demo.example()})["annotations"])
1
"""

from hshap.export import page
from hshap.export.arrays import dataarray, shap_values, table
from hshap.export.documents import coco, geojson, write_json
from hshap.export.findings import labels
from hshap.export.maps import write_png, write_tiff
from hshap.export.scans.dicom_map import write_dicom_map
from hshap.export.scans.dicom_seg import write_dicom_seg
from hshap.export.scans.napari import napari_layers
from hshap.export.scans.nifti import write_nifti
from hshap.export.scans.ome_tiff import write_ome_tiff
from hshap.export.scans.ome_zarr import write_ome_zarr
from hshap.export.tools.cvat import cvat, write_xml
from hshap.export.tools.datumaro import datumaro
from hshap.export.tools.fiftyone import fiftyone
from hshap.export.tools.label_studio import label_studio

__all__ = [
    "coco",
    "cvat",
    "dataarray",
    "datumaro",
    "fiftyone",
    "geojson",
    "label_studio",
    "labels",
    "napari_layers",
    "page",
    "shap_values",
    "table",
    "write_dicom_map",
    "write_dicom_seg",
    "write_json",
    "write_nifti",
    "write_ome_tiff",
    "write_ome_zarr",
    "write_png",
    "write_tiff",
    "write_xml",
]
