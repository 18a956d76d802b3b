"""Explains whether a running program is placed well, and which command would help."""
