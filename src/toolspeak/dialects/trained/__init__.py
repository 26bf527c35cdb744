"""Prompts as trained: what the models' own chat templates write of tools, calls and results, written here in Python."""
