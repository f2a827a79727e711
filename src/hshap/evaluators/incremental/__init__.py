"""Incremental evaluation of convolutional networks: recompute only activations that differ.

`recipe` is the evaluator, `session` the work of one run. For each input, a session finds the
rectangle in which it differs from an anchor (`rectangles`), gets the anchor's activations
(`activation_cache`) and asks whether a patch is worth its time (`cost_policy`). The first patch is
compared with a full pass (`comparison`). `tracing` turns a module into the steps of a `graph`, each
with its rule (`layer_rules`, `function_rules`); `traced_network` runs them on `patches` and looks
for `writes` in place. `report` prints how each layer runs.
"""
