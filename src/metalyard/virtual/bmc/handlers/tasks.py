"""Tasks: long operations that a client follows by polling."""

from __future__ import annotations

from metalyard.virtual.bmc.messages import RedfishError, error_body, message
from metalyard.virtual.bmc.service import Answer, Bmc, Call
from metalyard.virtual.bmc.state import Task, timestamp
from metalyard.virtual.bmc.tree import Resource

TASKS = "/redfish/v1/TaskService/Tasks"
MONITORS = "/redfish/v1/TaskService/TaskMonitors"


def accepted(bmc: Bmc, task: Task) -> Answer:
    """202 with the task's own body, and where its end is heard of."""
    body = bmc.render(bmc.resources()[f"{TASKS}/{task.id}"])
    return Answer(202, body, {"Location": f"{MONITORS}/{task.id}", "Retry-After": "1"})


async def monitor(bmc: Bmc, call: Call, resource: Resource) -> Answer:
    """The task's monitor: 202 while it runs, then what the operation itself would have answered."""
    task: Task = resource.item
    if task.ended is None:
        return accepted(bmc, task)
    if task.state == "Exception":
        return Answer(500, error_body(task.messages[-1:]))
    return Answer(200, error_body([message("Success")]))


async def delete_task(bmc: Bmc, call: Call, resource: Resource) -> None:
    """Forget a task that has ended."""
    if resource.item.ended is None:
        raise RedfishError(409, "ResourceInUse")
    bmc.state.tasks.pop(resource.item.id, None)
    bmc.state.changed()


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
