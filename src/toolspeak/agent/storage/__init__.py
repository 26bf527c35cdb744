"""Runs and sessions in a journal: reading, holding, suspending and exporting them."""
