"""Profiles of programs: how much neighbours slow them, how much they slow neighbours, and predictions from both."""
