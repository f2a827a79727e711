"""Evaluators: how a model is called.

`protocol` has the contract, `canvas` the image and the stand-ins of a run, `runners` the kinds of
models, `outputs` the checks of their scores. `painting` fills the inputs, `memory` halves batches
when memory runs out, `batch_mates` checks that scores do not depend on the batch, `provenance`
tells how they were made. `batched` paints full inputs, `incremental` recomputes only activations
that differ from the baseline's, `tokens` leaves hidden tokens out and `bags` adds up the features
of tiles.
"""
