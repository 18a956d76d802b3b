"""Reads the files that nodes leave, and stores their results as Parquet files and matrices."""
