"""Readers of block bodies: one for each way to write calls, and what they share."""
