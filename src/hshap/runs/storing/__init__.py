"""Storing: identities, rows, and the run folder with its guarantees."""
