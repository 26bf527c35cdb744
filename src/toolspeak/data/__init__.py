"""Frozen values: messages, tools, deltas, events, and their JSON. Standard library only."""
