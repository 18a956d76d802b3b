"""Engines that start jobs on nodes: batch systems, ssh, and this host."""
