"""Generators and readers of the images the experiments run on."""
