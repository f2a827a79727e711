"""Guarantees, a chapter for each kind; `hshap.guarantees` has their public names."""
