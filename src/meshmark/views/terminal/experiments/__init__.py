"""Prints the results of experiments and ratings."""
