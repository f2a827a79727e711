"""A trained model and a few images to try hshap on."""
