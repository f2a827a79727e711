"""Explanations as files and objects of other programs, and as a page for a browser.

Regions become COCO or GeoJSON, maps PNG or TIFF, tables pandas, arrays xarray or input of shap's
own plots; `page` makes an HTML file. Regions are exact: boxes are rectangles, any other form is a
polygon along the edges of its pixels. Coordinates are pixels of the original image, with the origin
at its top left corner: `Explanation.placement` tells where the explained pixels lie in it. Nothing
here calls a model.

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
