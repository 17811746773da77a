"""The ``metalyard`` command: its groups, and the one place where an error becomes a short text and an exit code."""

from __future__ import annotations

from typing import Any

import click

from metalyard import __version__
from metalyard.cli import failures
from metalyard.cli.bringup import bringup
from metalyard.cli.check import check
from metalyard.cli.init import init
from metalyard.cli.options import inventory_option
from metalyard.cli.plan import plan
from metalyard.cli.release import release
from metalyard.cli.report import report
from metalyard.cli.status import status
from metalyard.cli.virtual import virtual

EPILOG = """\b
Exit codes:
  0    everything is as asked
  1    an error; the text says which, and the next step
  2    the command was not understood
  3    not every node is in service
  4    another run holds a node
  130  interrupted; the same command goes on where it stopped
"""


class Commands(click.Group):
    """Commands in the order of a site's life, and errors as texts for people."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order they were added."""
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; what it raises is explained, never shown as a traceback (but for METALYARD_DEBUG=1)."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except (Exception, KeyboardInterrupt) as error:
            if failures.debugging():
                raise
            ctx.exit(failures.show(error))


@click.group(
    cls=Commands,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="metalyard")
@inventory_option
def cli() -> None:
    """Take racks of bare-metal H100 nodes from power-on to in service, and keep them there."""


for command in (init, check, plan, bringup, status, report, release, virtual):
    cli.add_command(command)
