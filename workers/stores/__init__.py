"""The two stores: the catalog (truth) and the vectors (rebuildable)."""
