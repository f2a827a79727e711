"""Functions that a worker can run; each returns a dict of numbers that JSON can hold."""
