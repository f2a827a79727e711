"""The guarantees of findings, tried on simulations with known truth and on four data sets."""
