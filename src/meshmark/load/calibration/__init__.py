"""Calibration data of load kernels, metrics over their counts, and the statistics of studies."""
