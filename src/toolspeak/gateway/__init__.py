"""`toolspeak serve`: the server role of three APIs in front of any model (docs/reference/gateway.md)."""
