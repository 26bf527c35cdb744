"""The commands that serve other programs, and those for a server's operator, one file each."""
