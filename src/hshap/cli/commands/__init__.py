"""The commands, one file each: a command checks its options and calls the modules around it."""
