"""The native placer for Python: candidates of placements, and the CPU time that other programs take."""
