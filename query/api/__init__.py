"""The query service: turns in, recall out, over HTTP, for agents that do not run Python here."""
