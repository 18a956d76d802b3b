"""Writes reports and other pages, and shows results in notebooks."""
