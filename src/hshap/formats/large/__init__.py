"""Large images: arrays on a disk that are read region by region, and never as a whole.

`opening` finds the reader of a file. There is one for tiled TIFF files, one for OME-Zarr, one for
whole slides, and one for arrays of NumPy, which may be memory maps.
"""
