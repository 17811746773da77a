"""Strict parsers of what the probes print: all of it is understood, or :class:`ParseError` says what is not."""
