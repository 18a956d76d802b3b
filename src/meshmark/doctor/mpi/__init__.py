"""Known pitfalls of MPI libraries and their launchers, each tested on this host."""
