"""toolspeak as an agent of editors: the Agent Client Protocol over standard input and output."""
