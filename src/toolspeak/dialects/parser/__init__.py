"""The streaming parsers of turns: text, reasoning, blocks of calls, and what is none of them."""
