"""Where the commands write: wide enough in a pipe that no line breaks, coloured on a terminal only."""

from __future__ import annotations

import json
import sys
from typing import Any

import click
from rich.console import Console

PIPE_WIDTH = 4000
"""In a file or a pipe a row stays one line, so that grep finds a node together with its reason."""


def console(*, error: bool = False) -> Console:
    """A console on standard output, or on standard error. Texts are never read as markup."""
    stream = sys.stderr if error else sys.stdout
    wide = None if stream.isatty() else PIPE_WIDTH
    return Console(file=stream, width=wide, markup=False, highlight=False, emoji=False, soft_wrap=False)


def print_json(data: Any) -> None:
    """One JSON document for programs."""
    click.echo(json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False))
