"""Shared by tests: made-up runs and machines, the command, waiting, the MPI libraries of this system."""
