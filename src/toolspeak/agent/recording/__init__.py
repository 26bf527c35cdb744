"""What happens in a run: recorded, shown to readers and to other processes, and traced."""
