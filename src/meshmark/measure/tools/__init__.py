"""Readers of the output of other tools: one file per tool, and `formats` that recognises them."""
