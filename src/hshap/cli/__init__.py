"""The command line. `commands` puts it together; `__main__` starts it."""
