"""Serves the live state of a fleet and the live maps of its nodes."""
