"""Detects the dialect of a turn. Holds the dialects that wrap another one."""
