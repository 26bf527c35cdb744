"""The commands about what a project and its user bring and configure, one file each."""
