"""Embedders: one port, several adapters, chosen by a setting."""
