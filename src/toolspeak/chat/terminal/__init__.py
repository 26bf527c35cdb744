"""The terminal of a conversation: a screen with an input, or plain lines."""
