"""The commands, one file each; a command reads its options and prints, the rest is elsewhere."""
