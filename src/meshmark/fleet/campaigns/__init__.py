"""Campaigns: every node of a set, or every pair of nodes, carries out one plan through a batch system."""
