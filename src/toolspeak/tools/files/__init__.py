"""The files of a workspace, as the built-in tools read, search and change them."""
