"""Dialects as declarations: the class, and a short way to declare each family."""
