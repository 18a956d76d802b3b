"""Results that their owner shares: their form, what is taken from a run, plausibility checks, and a site of them."""
