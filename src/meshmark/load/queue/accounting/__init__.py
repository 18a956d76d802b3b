"""Accounting files of batch systems: Standard Workload Format, Slurm, PBS and LSF."""
