"""Commands that place programs on CPUs and memory."""
