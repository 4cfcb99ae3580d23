"""Readers of the transcripts that agents leave on disk; one format, one file."""
