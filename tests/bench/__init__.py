"""Benchmarks: each module holds functions named as the figures they measure; see ``__main__``."""
