"""Runs commands of users under several settings, and decides which setting is best."""
