"""Synthetic programs that meet a target profile: calibration data, metrics, synthesis, program files and scenarios."""
