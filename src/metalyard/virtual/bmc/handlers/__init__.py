"""What the BMC does when a resource is changed or an action is called, by the names that a model's records use.

A handler gets the BMC, the call (a PATCH's body holds only what may be written) and the resource. It returns the
answer, or None for the usual one, and refuses with :class:`RedfishError`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from metalyard.virtual.bmc.handlers import accounts, manager, system, tasks, update
from metalyard.virtual.bmc.service import Answer, Bmc, Call
from metalyard.virtual.bmc.tree import Resource

Handler = Callable[[Bmc, Call, Resource], Awaitable[Answer | None]]

HANDLERS: dict[str, Handler] = {
    "create_session": accounts.create_session,
    "delete_session": accounts.delete_session,
    "session_service": accounts.patch_session_service,
    "create_account": accounts.create_account,
    "patch_account": accounts.patch_account,
    "delete_account": accounts.delete_account,
    "boot": system.patch_boot,
    "system_reset": system.reset,
    "bios_settings": system.patch_bios,
    "bios_reset": system.reset_bios,
    "network_protocol": manager.patch_network_protocol,
    "manager_reset": manager.reset,
    "clear_log": manager.clear_log,
    "subscribe": manager.subscribe,
    "unsubscribe": manager.unsubscribe,
    "test_event": manager.test_event,
    "delete_task": tasks.delete_task,
    "task_monitor": tasks.monitor,
    "simple_update": update.simple_update,
    "push_update": update.push_update,
}
