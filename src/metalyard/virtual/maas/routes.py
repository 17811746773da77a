"""The table of the emulated API: every path, its operations, and the description that clients build themselves from."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from metalyard.virtual.maas import lifecycle, machines, network, shelf
from metalyard.virtual.maas.core import Core
from metalyard.virtual.maas.model import MachineRecord
from metalyard.virtual.maas.render import ROOT
from metalyard.virtual.maas.reply import API_HASH, Request

Handler = Callable[[Core, Request], Awaitable[Any]]
Key = tuple[str, str | None]
REST_NAMES = {"GET": "read", "POST": "create", "PUT": "update", "DELETE": "delete"}


@dataclass(frozen=True)
class Resource:
    """One path. ``anonymous``: what may be called without a signature; None where that is nothing."""

    name: str
    path: str
    operations: dict[Key, Handler]
    anonymous: dict[Key, Handler] | None = None
    parameters: list[str] = field(init=False)
    pattern: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", re.findall(r"{(\w+)}", self.path))
        regex = re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", self.path)
        object.__setattr__(self, "pattern", re.compile(f"{ROOT}/{regex}"))

    @property
    def methods(self) -> list[str]:
        """The HTTP methods that the path knows at all."""
        used = {method for method, _ in (*self.operations, *(self.anonymous or {}))}
        return [method for method in ("PUT", "DELETE", "POST", "GET") if method in used]


def _on_machine(operation: Callable[[Core, MachineRecord, Request], Awaitable[Any]]) -> Handler:
    async def handler(core: Core, request: Request) -> Any:
        return await operation(core, machines.find(core, request), request)

    handler.__doc__ = operation.__doc__
    return handler


_MACHINE_OPS: dict[Key, Handler] = {
    ("POST", name): _on_machine(getattr(lifecycle, name))
    for name in [
        "abort",
        "commission",
        "deploy",
        "exit_rescue_mode",
        "lock",
        "mark_broken",
        "mark_fixed",
        "override_failed_testing",
        "power_off",
        "power_on",
        "release",
        "rescue_mode",
        "test",
        "unlock",
    ]
}

RESOURCES: tuple[Resource, ...] = (
    Resource("VersionHandler", "version/", {}, {("GET", None): shelf.version}),
    Resource(
        "UsersHandler",
        "users/",
        {("GET", None): shelf.list_users, ("GET", "whoami"): shelf.whoami},
    ),
    Resource("UserHandler", "users/{username}/", {("GET", None): shelf.read_user}),
    Resource("AccountHandler", "account/", {("GET", "list_authorisation_tokens"): shelf.list_tokens}),
    Resource("SSHKeysHandler", "account/prefs/sshkeys/", {("GET", None): shelf.list_sshkeys}),
    Resource(
        "MachinesHandler",
        "machines/",
        {
            ("GET", None): machines.list_machines,
            ("POST", None): machines.create,
            ("GET", "power_parameters"): machines.all_power_parameters,
            ("GET", "list_allocated"): machines.list_allocated,
            ("POST", "allocate"): machines.allocate,
            ("POST", "release"): machines.release_many,
        },
        {},
    ),
    Resource(
        "MachineHandler",
        "machines/{system_id}/",
        {
            ("GET", None): machines.read,
            ("PUT", None): machines.update,
            ("DELETE", None): machines.delete,
            ("GET", "power_parameters"): machines.power_parameters,
            ("GET", "query_power_state"): machines.query_power_state,
            ("POST", "set_workload_annotations"): machines.set_annotations,
            ("POST", "set_owner_data"): machines.set_annotations,
            **_MACHINE_OPS,
        },
    ),
    Resource("InterfacesHandler", "nodes/{system_id}/interfaces/", {("GET", None): network.list_interfaces}),
    Resource(
        "InterfaceHandler",
        "nodes/{system_id}/interfaces/{id}/",
        {
            ("GET", None): network.read_interface,
            ("PUT", None): network.update_interface,
            ("POST", "link_subnet"): network.link_subnet,
            ("POST", "unlink_subnet"): network.unlink_subnet,
            ("POST", "disconnect"): network.disconnect,
        },
    ),
    Resource("NodeScriptResultsHandler", "nodes/{system_id}/results/", {("GET", None): shelf.list_results}),
    Resource("NodeScriptResultHandler", "nodes/{system_id}/results/{id}/", {("GET", None): shelf.read_results}),
    Resource("TagsHandler", "tags/", {("GET", None): shelf.list_tags, ("POST", None): shelf.create_tag}),
    Resource(
        "TagHandler",
        "tags/{name}/",
        {
            ("GET", None): shelf.read_tag,
            ("PUT", None): shelf.update_tag,
            ("DELETE", None): shelf.delete_tag,
            ("GET", "machines"): shelf.tag_machines,
            ("GET", "nodes"): shelf.tag_machines,
            ("POST", "update_nodes"): shelf.update_nodes,
        },
    ),
    Resource(
        "ResourcePoolsHandler", "resourcepools/", {("GET", None): shelf.list_pools, ("POST", None): shelf.create_pool}
    ),
    Resource(
        "ResourcePoolHandler",
        "resourcepool/{id}/",
        {("GET", None): shelf.read_pool, ("PUT", None): shelf.update_pool, ("DELETE", None): shelf.delete_pool},
    ),
    Resource("ZonesHandler", "zones/", {("GET", None): shelf.list_zones, ("POST", None): shelf.create_zone}),
    Resource("ZoneHandler", "zones/{name}/", {("GET", None): shelf.read_zone, ("DELETE", None): shelf.delete_zone}),
    Resource(
        "NodeScriptsHandler", "scripts/", {("GET", None): shelf.list_scripts, ("POST", None): shelf.create_script}
    ),
    Resource(
        "NodeScriptHandler",
        "scripts/{name}",
        {
            ("GET", None): shelf.read_script,
            ("GET", "download"): shelf.download_script,
            ("DELETE", None): shelf.delete_script,
        },
    ),
    Resource("EventsHandler", "events/", {("GET", "query"): shelf.query_events}),
    Resource(
        "BootResourcesHandler",
        "boot-resources/",
        {
            ("GET", None): shelf.list_images,
            ("GET", "is_importing"): shelf.is_importing,
            ("POST", "import"): shelf.import_images,
        },
    ),
    Resource("BootResourceHandler", "boot-resources/{id}/", {("DELETE", None): shelf.delete_image}),
    Resource(
        "MaasHandler", "maas/", {("GET", "get_config"): shelf.get_config, ("POST", "set_config"): shelf.set_config}
    ),
    Resource(
        "SubnetsHandler", "subnets/", {("GET", None): network.list_subnets, ("POST", None): network.create_subnet}
    ),
    Resource(
        "SubnetHandler",
        "subnets/{id}/",
        {
            ("GET", None): network.read_subnet,
            ("DELETE", None): network.delete_subnet,
            ("GET", "unreserved_ip_ranges"): network.unreserved_ranges,
        },
    ),
    Resource("FabricsHandler", "fabrics/", {("GET", None): network.list_fabrics}),
    Resource("FabricHandler", "fabrics/{id}/", {("GET", None): network.read_fabric}),
    Resource("VlansHandler", "fabrics/{fabric_id}/vlans/", {("GET", None): network.list_vlans}),
    Resource("SpacesHandler", "spaces/", {("GET", None): network.list_spaces}),
    Resource("RackControllersHandler", "rackcontrollers/", {("GET", "describe_power_types"): shelf.power_types}),
)


def match(path: str) -> tuple[Resource, dict[str, str]] | None:
    """The resource of a path and the path's parameters; the trailing slash counts."""
    for resource in RESOURCES:
        found = resource.pattern.fullmatch(path)
        if found:
            return resource, found.groupdict()
    return None


def describe(base: str) -> dict[str, Any]:
    """What ``describe/`` answers; ``base`` is scheme and host. python-libmaas makes its methods from it."""
    resources = []
    for resource in RESOURCES:
        auth = _handler(resource, resource.operations, base, "") if resource.operations else None
        anon = _handler(resource, resource.anonymous, base, "Anon" if auth else "") if resource.anonymous else None
        resources.append({"anon": anon, "auth": auth, "name": resource.name})
    handlers = [entry for resource in resources for entry in (resource["anon"], resource["auth"]) if entry]
    return {"doc": "MAAS API", "handlers": handlers, "hash": API_HASH, "resources": resources}


def _handler(resource: Resource, operations: dict[Key, Handler], base: str, prefix: str) -> dict[str, Any]:
    return {
        "actions": [
            {
                "method": method,
                "name": op or REST_NAMES[method],
                "op": op,
                "restful": op is None,
                "doc": handler.__doc__ or "",
            }
            for (method, op), handler in operations.items()
        ],
        "doc": resource.name,
        "name": prefix + resource.name,
        "params": resource.parameters,
        "path": f"{ROOT}/{resource.path}",
        "uri": f"{base}{ROOT}/{resource.path}",
    }
