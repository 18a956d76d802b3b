"""Writes what was measured on a machine in the formats of other tools."""
