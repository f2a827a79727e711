"""The command line: `app` puts the commands together, and `hshap.__main__` starts it.

`commands` has one file for each command, `inputs` reads images, models and options, `runs` drives
`hshap explain` and guards its folder. `progress` and `output` write, `faults` has the exit codes.
"""
