"""Grammars of what a model may write with a set of tools, for matchers that constrain its decoding."""
