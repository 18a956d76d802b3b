"""Findings about this host: what it hides from measurements, and what slows it or one of its processes."""
