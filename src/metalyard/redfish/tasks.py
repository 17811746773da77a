"""Follows what a BMC does in the background: the Task itself, for its monitor is gone once it was read as finished."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from yarl import URL

from metalyard.redfish import messages
from metalyard.redfish.client import ROOT, Answer, Bmc
from metalyard.redfish.documents import link, name_of, number, text, uri
from metalyard.redfish.errors import DeadlineError, NotFoundError, NotReadyError, TaskFailedError, UnreachableError

DONE = frozenset({"Completed"})
FAILED = frozenset({"Exception", "Killed", "Cancelled", "CompletedWithErrors"})
"""Every other state, ``New`` and those that a vendor made up included, is on its way."""
APPEARS = 60.0
"""Seconds in which a task that was just made may not be found yet."""

Report = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """How a task ended. ``gone``: it can't be found any more, so that only the result can tell."""

    path: str
    state: str
    said: str = ""
    gone: bool = False


def task_of(answer: Answer) -> str | None:
    """The URI of the task that an answer started; None when it started none."""
    kind = str(answer.body.get("@odata.type") or "")
    if kind.startswith("#Task."):
        return uri(answer.body)
    location = URL(answer.location or "").path
    monitored = re.match(r"(/.*/TaskService)/(?:Tasks|TaskMonitors?)/([^/]+)", location)
    if monitored:
        return f"{monitored[1]}/Tasks/{monitored[2]}"
    return None


async def follow(bmc: Bmc, path: str, *, deadline: float, report: Report = lambda text: None) -> Outcome:
    """Wait for a task, through a reset of the BMC if need be, for at most ``deadline`` seconds.

    :class:`TaskFailedError` when it failed, with what the BMC said; :class:`DeadlineError` when it did not end.
    """
    began = bmc.pace.now()
    seen = False
    last = "not seen"

    async def ended() -> Outcome | None:
        nonlocal seen, last
        try:
            task = await bmc.get(path)
        except NotFoundError:
            if seen:
                return Outcome(path, last, gone=True)
            if bmc.pace.now() - began > APPEARS:
                return Outcome(path, last, gone=True)
            return None
        except (UnreachableError, NotReadyError) as error:
            last = f"the BMC does not answer ({type(error).__name__})"
            report("waiting for the BMC to answer again")
            return None
        seen = True
        last = text(task, "TaskState") or last
        percent = number(task, "PercentComplete")
        report(f"{text(task, 'Name') or 'task'}: {last}{f', {percent} %' if percent is not None else ''}")
        said = messages.said(task)
        if last in FAILED or (last in DONE and text(task, "TaskStatus") == "Critical"):
            raise TaskFailedError(
                f"{bmc.node}: the task {name_of(task, path)} ({text(task, 'Name') or 'unnamed'}) ended as {last}"
                f"{f': {bmc.scrub(said)}' if said else ''}",
                "Look at the task and the BMC's log, remove the reason, and run the command again.",
                ids=messages.ids(task),
            )
        return Outcome(path, last, said) if last in DONE else None

    outcome = await bmc.pace.wait_for(ended, deadline=deadline)
    if outcome is None:
        raise DeadlineError(
            f"{bmc.node}: the task {path} did not end within {deadline:.0f} s (last: {last})",
            "Run the same command again: it goes on with the task if it is still at work.",
        )
    return outcome


async def running_update(bmc: Bmc, root: dict[str, Any]) -> str | None:
    """The URI of a firmware update that is at work already; None when there is none, or the BMC does not say."""
    service = await bmc.find(link(root, "Tasks") or f"{ROOT}TaskService")
    for path, task in await bmc.resources(link(service, "Tasks")):
        state = text(task, "TaskState")
        if state is None or state in DONE | FAILED:
            continue
        payload = task.get("Payload")
        target = text(payload, "TargetUri") or ""
        about = f"{target} {text(task, 'Name') or ''} {text(task, 'Description') or ''}"
        if re.search(r"(?i)updateservice|firmware|\bupdate\b", about):
            return path
    return None
