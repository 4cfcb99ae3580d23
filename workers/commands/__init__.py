"""Commands that run and watch the system; one command, one file."""
