"""Inputs of the commands: images, models, saved explanations, and the words of options."""
