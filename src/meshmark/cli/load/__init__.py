"""`meshmark load` and its commands."""
