"""The commands `watch`, `record`, `replay` and `plot`."""
