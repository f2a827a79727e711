"""The shared parts of every experiment: protocol, tasks, runner, meter, measures and results."""
