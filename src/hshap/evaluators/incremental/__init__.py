"""Incremental evaluation of convolutional networks: recompute only activations that differ.

`recipe` is the evaluator, `session` the work of one run. For each input, a session finds the
rectangle in which it differs from an anchor (`row_groups`), gets the anchor's activations
(`activation_cache`) and asks whether a patch is worth its time. The first patch is compared with a
full pass. `tracing` turns a module into `steps`, after `rewriting` its graph, each with its rule
(`layer_rules`, `function_rules`); `network` runs them on `patches`, or on the borders of `boxes`.
`layer_report` prints how each layer runs.
"""
