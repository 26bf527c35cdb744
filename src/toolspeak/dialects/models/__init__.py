"""The dialects that models were trained on; close relatives share a file."""
