"""Helpers that know nothing of images, games or models: checks, files, recipes, arrays, types."""
