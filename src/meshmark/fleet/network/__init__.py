"""Measures and judges messages between nodes, and chooses nodes that are near one another."""
