"""Statements of publications about the machines that models describe, one file per family of machines."""
