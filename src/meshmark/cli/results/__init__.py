"""Commands that show and judge stored results."""
