"""What the models' own chat templates write for tools, calls and results, written in Python."""
