"""Compares the counters of memory and links with loads whose traffic is known."""
