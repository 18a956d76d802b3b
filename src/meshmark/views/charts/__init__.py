"""Draws charts of records as Vega-Lite specifications."""
