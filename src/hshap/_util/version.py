"""The version, in the one place where it is written."""

__version__ = "0.2.0.dev0"
