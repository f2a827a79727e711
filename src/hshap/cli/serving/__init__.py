"""The server of `hshap serve`: the page of a folder that grows, on this machine alone.

`server` answers requests, `guard` refuses those of strangers, `drops` stores dropped images, and
`growing` explains new images in the background.
"""
