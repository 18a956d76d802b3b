"""The commands: each module parses options, calls functions of other packages, and prints their results."""
