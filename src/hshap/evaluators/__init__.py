"""Evaluators: how models are called, in full or incrementally.

`protocol` has the contract. `canvas` has images and their stand-ins, `painting` paints rows,
`batched` scores them in full batches and `runners` calls each kind of model. `batch_size` limits
batches, `batch_independence` checks that scores do not depend on the batch, and `allocator` keeps
freed memory. `tokens`, `bags`, `tiles` and `slices` score models that see an image in parts.
"""
