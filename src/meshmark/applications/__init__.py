"""Runs programs of users, as their application files describe them, and explains the results."""
