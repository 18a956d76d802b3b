"""Judges the health of nodes: suspects of a campaign, named nodes, and trends of classes."""
