"""DICOM: one image, a multi-frame image, or a folder with one series, as a `Scan`.

`headers` opens files and refuses those that are no image, `geometry` finds the place of each slice,
`pixels` decodes values, and `series` puts the slices together. Texts of a header reach no message,
no `Scan` and no export: an error names the file and the attribute, never its value, and has no
cause, whose text might hold one.
"""
