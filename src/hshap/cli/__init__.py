"""The command line: `app` puts the commands together, and `hshap.__main__` starts it.

`commands` has one file for each command, `inputs` reads images, models and options. `results` and
`output` write, `progress` shows a bar and tables, `faults` has the exit codes.
"""
