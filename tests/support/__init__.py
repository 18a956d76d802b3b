"""Code that tests share: simulated runs and machines, the command, waiting, the MPI libraries of this system."""
