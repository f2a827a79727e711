"""Explanations in the formats that people already use.

Regions go out as COCO and as GeoJSON, maps as PNG and TIFF, tables as pandas, arrays as xarray and
as what shap's own plots take. Regions are exact: boxes as rectangles, any other form as polygons
along the edges of its pixels. Coordinates are pixels of the image that was explained, with the
origin at its top left corner. Nothing here calls a model.

>>> from hshap import demo, export
>>> len(export.coco({"cell.png": demo.example()})["annotations"])
1
"""

from hshap.export import page
from hshap.export.arrays import dataarray, shap_values, table
from hshap.export.documents import coco, geojson, write_json
from hshap.export.maps import write_png, write_tiff

__all__ = [
    "coco",
    "dataarray",
    "geojson",
    "page",
    "shap_values",
    "table",
    "write_json",
    "write_png",
    "write_tiff",
]
