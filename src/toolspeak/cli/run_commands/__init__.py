"""The commands that start, continue, steer, show and keep runs and sessions, one file each."""
