"""The report as one HTML file: self-contained, escaped, readable on a phone, on paper, by day and by night."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from metalyard import __version__
from metalyard.files import write_atomically
from metalyard.plan.lifecycle import STAGES, Stage
from metalyard.report.data import SiteView
from metalyard.report.picture import draw
from metalyard.report.words import STAGE_LABELS, STAGE_OUTCOMES

SHORT = {
    Stage.DISCOVER: "dis",
    Stage.BMC: "bmc",
    Stage.FIRMWARE: "fw",
    Stage.PROVISION: "prv",
    Stage.CONFIGURE: "cfg",
    Stage.FABRIC: "fab",
    Stage.IMAGES: "img",
    Stage.PROVE: "prf",
    Stage.ADMIT: "adm",
}
"""Column heads of the stage marks; each carries the whole word as its title."""


SHOWN = 24
"""Nodes that wait for a person, shown at the top; the sections of more than this many stay closed."""


def render(view: SiteView) -> str:
    """The page. Everything that comes from a plan, a node or a BMC is escaped."""
    environment = Environment(
        loader=PackageLoader("metalyard.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = environment.get_template("page.html.j2")
    return template.render(
        view=view,
        picture=draw(view.plan, view.nodes, view.cables),
        stages=[(SHORT[stage], STAGE_LABELS[stage]) for stage in STAGES],
        shown=SHOWN,
        stage_words=list(STAGE_OUTCOMES.values()),
        version=__version__,
    )


def write(view: SiteView, target: Path) -> Path:
    """Write the page, whole or not at all; returns its absolute path."""
    write_atomically(target, render(view).encode(), mode=0o640)
    return target.resolve()
