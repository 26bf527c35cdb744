"""What a run has come to: its state, the fold of its records, and the pure decisions about it."""
