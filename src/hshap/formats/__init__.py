"""Files of hospitals and labs: an image with its axes, its spacing and its place in the world.

`reading` finds the reader of a file, and a `Scan` is the result. `large` reads images that do not
fit in memory, region by region. Writers of the same formats are in `hshap.export`.
"""
