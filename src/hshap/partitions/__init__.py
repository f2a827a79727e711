"""Partitions: how an image is split into regions.

`regions` has the sets of pixels and `protocol` the contract of a partition. `grids` splits boxes,
`superpixels` follows the edges of the image with a `merge_tree`, and `spots` looks where the image
differs from the baseline. `outlines` traces polygons around regions.
"""
