"""Tasks: long operations that a client follows by polling."""

from __future__ import annotations

from metalyard.virtual.bmc.messages import message
from metalyard.virtual.bmc.service import Answer, Bmc
from metalyard.virtual.bmc.state import Task, timestamp

TASKS = "/redfish/v1/TaskService/Tasks"


def accepted(bmc: Bmc, task: Task) -> Answer:
    """202 with the task's own body, and where it is followed."""
    path = f"{TASKS}/{task.id}"
    return Answer(202, bmc.render(bmc.resources()[path]), {"Location": path, "Retry-After": "1"})


def advance(bmc: Bmc, task: Task, percent: int) -> None:
    """The task runs and has come this far."""
    task.state, task.percent = "Running", percent
    bmc.state.changed()


def complete(bmc: Bmc, task: Task) -> None:
    """The task ended well; messages it already carries stay before the last one."""
    task.state, task.percent, task.ended = "Completed", 100, timestamp()
    task.messages = [*task.messages, message("TaskEvent.1.0.TaskCompletedOK", task.id)]
    bmc.state.changed()


def fail(bmc: Bmc, task: Task, name: str, *args: object) -> None:
    """The task ended in an exception, with the message that says why."""
    task.state, task.status, task.ended = "Exception", "Critical", timestamp()
    task.messages = [*task.messages, message(name, *args)]
    bmc.state.changed()
