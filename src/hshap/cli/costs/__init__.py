"""The cost of a run before it starts: formulas, the time of an evaluation, a sample of images."""
