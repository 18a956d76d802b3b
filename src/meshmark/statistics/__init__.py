"""Statistics: verdicts, paired and robust estimates, change points, tails, and fits of scaling and of clocks."""
