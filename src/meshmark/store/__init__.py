"""Stores records as runs of immutable Parquet files, and writes files atomically."""
