"""Group testing; see `search`."""
