"""The class of declared dialects, and for each family a function that makes one."""
