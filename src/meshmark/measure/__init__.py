"""Measurements and surveys of this host, and readers of the output of other tools."""
