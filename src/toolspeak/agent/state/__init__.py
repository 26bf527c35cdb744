"""A run's state: the fold of its records, and the pure decisions about what comes next."""
