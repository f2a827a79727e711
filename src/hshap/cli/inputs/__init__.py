"""Readers of the inputs of commands: images, models, saved explanations, words of options."""
