"""Measuring recall on labelled sets: metrics, settings side by side, advice, and the fit of the weights."""
