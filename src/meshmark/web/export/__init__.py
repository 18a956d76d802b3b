"""Sends metrics as OpenMetrics and OTLP."""
