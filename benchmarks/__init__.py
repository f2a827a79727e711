"""Experiments that measure hshap; not part of the installed package."""
