"""The streaming parsers of turns: text, reasoning, blocks of calls, and everything else."""
