"""Fits machine files to surveys and to key numbers."""
