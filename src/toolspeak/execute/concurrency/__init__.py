"""What runs at the same time: the order, the limits, threads, timers and pauses."""
