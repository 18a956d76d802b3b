"""Job mixes under placement policies: where the jobs come from, how they are simulated, and what a policy gains."""
