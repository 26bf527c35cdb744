"""A run as a picture: its turns and calls over time. Pure."""
