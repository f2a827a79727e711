"""Evaluators: how a model is called.

`protocol` has the contract, `canvas` the image and the stand-ins of a run, `runners` the kinds of
models, `outputs` the checks of their scores. `batched` paints full inputs, `incremental` recomputes
only activations that differ from the baseline's, `tokens` leaves hidden tokens out and `bags` adds
up the features of tiles.
"""
