"""A run of `hshap explain`: its images, its folder, its results, and a stop in between."""
