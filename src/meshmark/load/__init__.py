"""Programs with a prescribed behaviour: base data of kernels, metrics over them, synthesis, program files."""
