"""Guarantees: tests of regions, error rates, calibrated areas, agreement. No model is called here.

`hshap.explainer.region_tests` makes the draws that the tests need.
"""
