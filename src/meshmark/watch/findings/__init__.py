"""Findings about frames: hot spots and oversubscribed CPUs."""
