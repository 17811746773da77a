"""Errors as an operator reads them: what was seen, then one next step, and the exit code."""

from __future__ import annotations

import os
import sys

import click

OK = 0
ERROR = 1
USAGE = 2
NOT_ALL = 3
HELD = 4
INTERRUPTED = 130
"""What shells give a process that Ctrl-C ended."""

MANY = 20
"""Problems of a plan shown at once."""


def debugging() -> bool:
    """Whether tracebacks are wanted."""
    return os.environ.get("METALYARD_DEBUG", "") not in ("", "0")


def show(error: BaseException) -> int:
    """Print an error on standard error; returns the exit code."""
    if isinstance(error, KeyboardInterrupt):
        click.echo("\nInterrupted. " + resume_hint(), err=True)
        return INTERRUPTED
    lines, next_step = explain(error)
    for line in lines:
        click.echo(line, err=True)
    if next_step:
        click.echo(f"Next step: {next_step}", err=True)
    return ERROR


def explain(error: BaseException) -> tuple[list[str], str]:
    """The lines that say what was seen, and the next step."""
    problems = getattr(error, "problems", None)
    if problems:
        lines = [str(problem) for problem in problems[:MANY]]
        if len(problems) > MANY:
            lines.append(f"and {len(problems) - MANY} more")
        many = len(problems) > 1
        return lines, f"mend {'these lines' if many else 'this line'}, then `metalyard check --offline`."
    next_step = getattr(error, "next_step", None)
    if isinstance(next_step, str):
        return [str(getattr(error, "message", "") or error)], next_step
    if type(error).__module__.startswith("metalyard."):
        return [str(error)], ""  # written for an operator, with the next step in it
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return [f"{where}{error.strerror}"], "check the path, and that this user may read and write there."
    return (
        [f"unexpected {type(error).__name__}: {error}"],
        "this is a defect of Metalyard: run again with METALYARD_DEBUG=1 and report what it prints.",
    )


def resume_hint() -> str:
    """How an interrupted command goes on, with the very words that were typed."""
    words = " ".join(_quoted(word) for word in sys.argv[1:]) if sys.argv[1:] else "bringup"
    return f"What was done is recorded. Run the same command to go on where it stopped: metalyard {words}"


def _quoted(word: str) -> str:
    import shlex

    return shlex.quote(word)
