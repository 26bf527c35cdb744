"""Which dialect a turn is in, and dialects that wrap another one."""
