"""Evaluators: how a model is called.

`protocol` has the contract, `canvas` the image and the stand-ins of a run, `runners` the kinds of
models. `batched` paints full inputs, `incremental` recomputes only activations that differ from the
baseline's, `tokens` leaves hidden tokens out and `bags` adds up features of tiles.
"""
