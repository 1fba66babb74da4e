"""Frozen values that cross boundaries: between layers, between processes."""
