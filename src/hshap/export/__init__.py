"""Explanations as files and objects of other programs, and as a page for a browser.

Regions become COCO, GeoJSON for QuPath, or documents of Label Studio and CVAT;
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
from hshap.export.annotation_tools import cvat, label_studio, write_xml
from hshap.export.arrays import dataarray, napari_layers, shap_values, table
from hshap.export.dicom_files import write_dicom_map, write_dicom_seg
from hshap.export.documents import coco, coco_results, geojson, write_json
from hshap.export.map_files import (
    write_nifti,
    write_ome_tiff,
    write_ome_zarr,
    write_png,
    write_tiff,
)
from hshap.export.placed_findings import labels

__all__ = [
    "coco",
    "coco_results",
    "cvat",
    "dataarray",
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
