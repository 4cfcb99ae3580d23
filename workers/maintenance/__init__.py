"""Scheduled jobs that keep the stores fast."""
