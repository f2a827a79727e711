"""Baselines: the pixels that a model sees in place of hidden ones.

`recipes` has the baselines, `protocol` their contract, `samplers` draws for random baselines and
`dataset_mean` the mean of a data set.
"""
