"""Varies parameters of modelled machines, and computes their key figures."""
