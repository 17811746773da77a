"""Command line: one small file per group of commands, no logic of its own."""

from __future__ import annotations


def main() -> None:
    """Entry point of the ``metalyard`` command."""
    from metalyard.cli.app import cli

    cli(prog_name="metalyard")
