"""What a call is before it runs and afterwards: its id, its arguments, its result and where that is kept."""
