"""Grammars from the live tool set: what a model may write, for matchers that constrain its decoding."""
