"""Simulates machines that their files describe, and fits such files to measured machines."""
