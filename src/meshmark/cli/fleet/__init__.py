"""`meshmark fleet` and its commands."""
