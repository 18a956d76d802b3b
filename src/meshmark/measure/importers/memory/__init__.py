"""Readers of the output of memory benchmarks, one file per tool."""
