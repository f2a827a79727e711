"""Training, one command per data set."""
