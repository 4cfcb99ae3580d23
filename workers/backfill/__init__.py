"""Importing old transcripts: which turns are new, where they belong, and how far each file has come."""
