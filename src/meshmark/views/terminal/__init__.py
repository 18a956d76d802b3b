"""Prints results in the terminal."""
