"""The numbers of publications about machines, with their sources."""
