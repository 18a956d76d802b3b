"""Measures the nodes of a cluster by campaigns, and judges which of them are worse than others."""
