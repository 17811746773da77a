"""Which nodes a limit means: the patterns Ansible knows, held against the plan so that a typo is an error. Pure."""

from __future__ import annotations

import difflib
import re
from fnmatch import fnmatchcase

from metalyard.plan.inventory import derive
from metalyard.plan.model import Node, SitePlan


class ChoiceError(ValueError):
    """A limit names nothing of the plan; ``message`` says which part, ``next_step`` what it may be."""

    def __init__(self, message: str, next_step: str) -> None:
        super().__init__(f"{message} {next_step}")
        self.message = message
        self.next_step = next_step


def chosen(plan: SitePlan, limit: str | None) -> list[Node]:
    """The nodes of a limit, in the plan's order; all without one.

    Parts are separated by commas or colons; each is a node, a group (``rack_r01``, ``spares``) or a pattern with
    ``*`` and ``?``. ``!part`` excludes, ``&part`` keeps the common ones. :class:`ChoiceError` for a part that names
    nothing, and for a limit that leaves no node.
    """
    if not limit:
        return list(plan.nodes)
    names = [node.name for node in plan.nodes]
    groups = {name: set(hosts) & set(names) for name, hosts in derive(plan).groups.items()}
    picked: set[str] | None = None
    parts = [part.strip() for part in re.split(r"[,:]", limit) if part.strip()]
    for part in sorted(parts, key=lambda text: (text[0] == "!", text[0] == "&")):
        mark, pattern = (part[0], part[1:]) if part[0] in "!&" else ("", part)
        found = _named(pattern, names, groups, plan)
        if mark == "!":
            picked = (set(names) if picked is None else picked) - found
        elif mark == "&":
            picked = (set(names) if picked is None else picked) & found
        else:
            picked = (picked or set()) | found
    nodes = [node for node in plan.nodes if node.name in (picked or set())]
    if not nodes:
        raise ChoiceError(f"The limit '{limit}' leaves no node.", "Name at least one node, rack or group of the plan.")
    return nodes


def _named(pattern: str, names: list[str], groups: dict[str, set[str]], plan: SitePlan) -> set[str]:
    if pattern == "all":
        return set(names)
    found = {name for name in names if fnmatchcase(name, pattern)}
    for group, members in groups.items():
        if fnmatchcase(group, pattern):
            found |= members
    if found or pattern in {host.name for host in plan.hosts} or pattern == "localhost":
        return found
    known = [*names, *(group for group, members in groups.items() if members)]
    close = difflib.get_close_matches(pattern, known, n=3)
    step = f"Did you mean {' or '.join(close)}?" if close else f"Groups are {', '.join(sorted(groups))}."
    raise ChoiceError(f"The plan {plan.source} has no node or group '{pattern}'.", step)
