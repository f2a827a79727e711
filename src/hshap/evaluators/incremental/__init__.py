"""Incremental evaluation of convolutional networks: recompute only activations that differ.

`recipe` is the evaluator, `session` the work of one run. A session asks `cost_policy` whether a
patch pays, `rectangles` where it lies and `activation_cache` for the activations around it.
`traced_network` runs patches through the `graph` of a network by `layer_rules` and
`function_rules`, which work on `patches`.
"""
