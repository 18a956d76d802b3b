"""The tables and the chart of a mix of jobs under several policies."""
