"""Image files: the decoders that a file may reach, and the sizes that it announces."""
