"""Commands that measure this machine, programs of the user, and composites."""
