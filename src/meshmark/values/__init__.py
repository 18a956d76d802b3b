"""Parses and checks what users write: options, units, paths and input files. Hides secrets."""
