"""Readers of the output of other tools: a file per tool, and `formats`, which recognises the format of a file."""
