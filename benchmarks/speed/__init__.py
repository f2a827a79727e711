"""Time, memory and evaluations, against the authors' package and peers.

Two commands share one stack. `own_cost` measures the library's own cost, outside the model;
`speed_table` (`benchmarks/run speed`) measures everything else. Both give tasks to `process`, which
starts a `worker` for each; the worker calls a function of `measurements/`.
"""
