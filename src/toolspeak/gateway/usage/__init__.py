"""Usage of the gateway's keys, and their limits."""
