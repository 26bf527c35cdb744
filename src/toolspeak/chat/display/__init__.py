"""How a conversation looks: Markdown, code, calls and their results, as lines of styled text."""
