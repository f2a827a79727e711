"""One module per experiment: each has a command and writes or prints one table."""
