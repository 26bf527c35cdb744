"""Runs recorded in a file and played again."""
