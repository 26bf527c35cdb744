"""The models' own dialects, close relatives in one file."""
