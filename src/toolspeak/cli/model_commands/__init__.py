"""The commands about what a model writes and the tools that it calls, one file each."""
