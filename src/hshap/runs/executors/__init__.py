"""Executors: where the tasks of a run are worked on."""
