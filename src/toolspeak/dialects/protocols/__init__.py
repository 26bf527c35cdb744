"""The published text protocols."""
