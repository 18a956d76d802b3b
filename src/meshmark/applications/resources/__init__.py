"""Limits the resources of programs of users: CPU clock, cache, prefetchers, memory and processes."""
