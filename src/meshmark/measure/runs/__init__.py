"""Plans, launches and journals the runs of instruments."""
