"""`toolspeak ui`: runs in a browser, and the JSON API below it (docs/guides/web-view.md)."""
