"""Writers of prompts, histories and results, and the reader of results."""
