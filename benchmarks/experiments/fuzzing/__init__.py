"""Random networks for the fuzzer of `Incremental`, and the cases that they are tried on."""
