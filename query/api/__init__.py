"""The query service: recall over HTTP, for agents that do not run Python here."""
