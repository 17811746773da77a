"""Command line: one small file per group of commands, no logic of its own."""

from __future__ import annotations


def main() -> None:
    """Entry point of the ``metalyard`` command."""
    import sys
    from contextlib import suppress

    from metalyard.cli.app import cli

    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):  # not a stream of this process's own
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # marks must not end a command in an old locale
    cli(prog_name="metalyard")
