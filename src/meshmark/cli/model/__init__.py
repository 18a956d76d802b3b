"""`meshmark model` and its commands."""
