"""A copy of the whole system that others can check and restore, taken while it runs."""
