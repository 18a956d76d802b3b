"""Explains the results of applications: effects of the clock, the prefetchers and the cache, reasons, and profiles."""
