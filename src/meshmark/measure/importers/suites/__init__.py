"""Readers of the results of benchmark suites, one file per suite."""
