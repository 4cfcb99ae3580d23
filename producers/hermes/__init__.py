"""Hermes' memory provider: turns go out as they are said, what they recall comes back before the next one."""
