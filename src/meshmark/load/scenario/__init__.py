"""Scenarios: programs that run together, how they are checked, placed and run, and their results."""
