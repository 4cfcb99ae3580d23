"""Commands that ask and measure; one command, one file."""
