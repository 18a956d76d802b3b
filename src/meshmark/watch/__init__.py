"""Frames of live machines, recordings and models: their format, the layout of the map, and findings."""
