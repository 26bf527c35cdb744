"""Scanning text: markers, JSON values, Markdown, values typed by a schema."""
