"""The API's machines: create, find, read, change, delete, allocate, power parameters."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from typing import Any

from metalyard.virtual.maas import lifecycle
from metalyard.virtual.maas.core import Core
from metalyard.virtual.maas.model import MachineRecord, Named
from metalyard.virtual.maas.render import machine as render
from metalyard.virtual.maas.reply import ApiError, Raw, Request, conflict, forbidden, not_found, refused
from metalyard.virtual.maas.status import FILTER_NAMES, Status

Json = dict[str, Any]

POWER_LABELS = {
    "power_address": "Redfish address",
    "power_user": "Redfish user",
    "power_pass": "Redfish password",
}
_FILTERS = frozenset(
    [
        "id",
        "hostname",
        "mac_address",
        "domain",
        "zone",
        "not_in_zone",
        "pool",
        "not_in_pool",
        "agent_name",
        "status",
        "tags",
        "not_tags",
        "architecture",
        "parent",
        "deployment_target",
    ]
)
_CONSTRAINTS = _FILTERS | frozenset(
    [
        "name",
        "system_id",
        "arch",
        "cpu_count",
        "mem",
        "not_arch",
        "storage",
        "interfaces",
        "fabrics",
        "not_fabrics",
        "subnets",
        "not_subnets",
        "vlans",
        "devices",
        "pod",
        "not_pod",
        "pod_type",
        "not_pod_type",
        "connected_to",
        "not_connected_to",
        "fabric_classes",
        "not_fabric_classes",
    ]
)
_HOSTNAME = re.compile(r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", re.IGNORECASE)
_MAC = re.compile(r"^([0-9a-f]{2}[:-]){5}[0-9a-f]{2}$", re.IGNORECASE)
_ADJECTIVES = ["noted", "quick", "calm", "brave", "clever", "eager", "fair", "grand", "keen", "sharp", "sound", "swift"]
_ANIMALS = [
    "rhino",
    "otter",
    "heron",
    "badger",
    "falcon",
    "lynx",
    "marten",
    "newt",
    "osprey",
    "raven",
    "shrew",
    "viper",
]


def find(core: Core, request: Request) -> MachineRecord:
    """The machine of the path; 404 otherwise."""
    machine = core.state.machines.get(request.args["system_id"])
    if machine is None:
        raise not_found("Machine")
    return machine


async def read(core: Core, request: Request) -> Json:
    """One machine."""
    return render(core.state, find(core, request))


async def list_machines(core: Core, request: Request) -> list[Json]:
    """The machines that pass every filter."""
    return [render(core.state, machine) for machine in _filtered(core, request)]


def _filtered(core: Core, request: Request) -> list[MachineRecord]:
    wanted: dict[str, list[str]] = {}
    for key, value in request.query:
        if key == "op":
            continue
        if key not in _FILTERS:
            raise refused(**{key: ["No such constraint."]})
        wanted.setdefault(key, []).extend(part for part in value.split(",") if part)
    _known(core, wanted)
    return [machine for machine in core.state.machines.values() if _matches(core, machine, wanted)]


def _known(core: Core, wanted: dict[str, list[str]]) -> None:
    for name in wanted.get("status", []):
        if name not in FILTER_NAMES:
            raise refused(status=[f"Select a valid choice. {name} is not one of the available choices."])
    for key, known in (
        ("pool", {pool.name for pool in core.state.pools}),
        ("zone", {zone.name for zone in core.state.zones}),
        ("tags", set(core.state.tags)),
        ("not_tags", set(core.state.tags)),
    ):
        unknown = [name for name in wanted.get(key, []) if name not in known]
        if unknown:
            what = "tag" if "tags" in key else key
            raise refused(**{key: [f"No such {what}(s): {', '.join(unknown)}."]})


def _matches(core: Core, machine: MachineRecord, wanted: dict[str, list[str]]) -> bool:
    pool, zone = _name(core.state.pools, machine.pool), _name(core.state.zones, machine.zone)
    single = {
        "id": machine.system_id,
        "system_id": machine.system_id,
        "hostname": machine.hostname,
        "name": machine.hostname,
        "domain": "maas",
        "agent_name": "",
        "pool": pool,
        "zone": zone,
        "arch": machine.architecture,
        "architecture": machine.architecture,
    }
    for key, values in wanted.items():
        if key in single and single[key] not in values:
            return False
        if key == "mac_address" and not any(machine.interface(mac) for mac in values):
            return False
        if key == "status" and machine.status not in [FILTER_NAMES[name] for name in values]:
            return False
        if key == "tags" and not set(values) <= set(machine.tags):
            return False
        if key == "not_tags" and set(values) & set(machine.tags):
            return False
        if (key == "not_in_pool" and pool in values) or (key == "not_in_zone" and zone in values):
            return False
        if key == "cpu_count" and machine.cpu_count < float(values[0]):
            return False
        if key == "mem" and machine.memory < float(values[0]):
            return False
    return True


def _name(entries: list[Named], number: int) -> str:
    return next((entry.name for entry in entries if entry.id == number), "")


async def create(core: Core, request: Request) -> Json:
    """Enlist a machine; an administrator's call commissions it too unless it says otherwise."""
    problems: dict[str, list[str]] = {}
    architecture = _architecture(core, request, problems)
    macs = [mac.lower().replace("-", ":") for mac in request.all("mac_addresses")]
    power_type = request.get("power_type")
    _check_macs(core, macs, problems)
    if "mac_addresses" in problems and power_type not in ("", "manual"):
        problems["power_type"] = [f"Can't set power type to {power_type} without network interfaces"]
    hostname = request.get("hostname").lower()
    _check_hostname(core, hostname, None, problems)
    parameters = _power(core, request, power_type, {}, problems)
    if problems:
        raise ApiError(400, problems)
    # The real one looks for the MAC well before it writes: calls at once with one MAC all succeed, and so they do here.
    await asyncio.sleep(0.3 / core.speed)
    interfaces = [core.new_interface(index, mac) for index, mac in enumerate(macs)]
    machine = MachineRecord(
        system_id=core.state.new_system_id(),
        hostname=hostname or f"{secrets.choice(_ADJECTIVES)}-{secrets.choice(_ANIMALS)}",
        architecture=architecture,
        power_type=power_type,
        power_parameters=parameters,
        interfaces=interfaces,
        description=request.get("description"),
    )
    core.state.machines[machine.system_id] = machine
    if request.user.is_superuser and request.flag("commission", default=True):
        core.save()
        return await lifecycle.commission(core, machine, request)
    return render(core.state, machine)


def _architecture(core: Core, request: Request, problems: dict[str, list[str]]) -> str:
    given = request.get("architecture")
    if "/" not in given and request.has("subarchitecture"):
        given = f"{given}/{request.get('subarchitecture')}"
    kernels = sorted({f"amd64/{name}" for image in core.state.images for name in ("generic", image.kernel)})
    if not given:
        problems["architecture"] = ["This field is required."]
    elif given not in kernels:
        choices = ", ".join(f"'{name}'" for name in kernels) or "''"
        problems["architecture"] = [f"'{given}' is not a valid architecture.  It should be one of: {choices}."]
    return given


def _check_macs(core: Core, macs: list[str], problems: dict[str, list[str]]) -> None:
    if not macs:
        problems["mac_addresses"] = ["This field is required."]
    for mac in macs:
        other = core.state.by_mac(mac)
        if not _MAC.match(mac):
            problems["mac_addresses"] = [f"'{mac}' is not a valid MAC address."]
        elif other:
            problems["mac_addresses"] = [f"MAC address {mac} already in use on {other.hostname}."]


def _check_hostname(core: Core, hostname: str, own: MachineRecord | None, problems: dict[str, list[str]]) -> None:
    if not hostname:
        return
    if not _HOSTNAME.match(hostname):
        problems["hostname"] = ["DNS name contains an empty label."]
    elif any(m.hostname == hostname and m is not own for m in core.state.machines.values()):
        problems["hostname"] = ["Node with this Hostname already exists."]


def _power(
    core: Core, request: Request, power_type: str, existing: dict[str, str], problems: dict[str, list[str]]
) -> dict[str, str]:
    prefix = "power_parameters_"
    given = {key[len(prefix) :]: value for key, value in request.form if key.startswith(prefix)}
    given.pop("skip_check", None)
    if request.has("power_parameters"):
        try:
            given |= {key: str(value) for key, value in json.loads(request.get("power_parameters")).items()}
        except (ValueError, AttributeError):
            problems["power_parameters"] = ["Expected a JSON object."]
            return {}
    if power_type not in core.power_fields:
        known = ", ".join(f"'{name}'" for name in sorted(core.power_fields) if name)
        problems["power_type"] = [f"Select a valid choice. {power_type} is not one of {known}."]
        return {}
    fields = core.power_fields[power_type]
    unknown = [key for key in given if key not in fields]
    if unknown:
        problems["power_parameters"] = [f"Unknown parameter(s): {', '.join(unknown)}."]
    merged = {field: given.get(field, existing.get(field, "")) for field in fields}
    missing = [label for field, label in POWER_LABELS.items() if field in fields and not merged[field]]
    if missing and "mac_addresses" not in problems:
        problems["power_parameters"] = [f"{label}: This field is required." for label in missing]
    return merged


async def update(core: Core, request: Request) -> Json:
    """Change what the form names; unknown fields are passed over in silence, as in the real one."""
    machine = find(core, request)
    lifecycle.must_administer(request)
    if machine.locked:
        raise forbidden()
    problems: dict[str, list[str]] = {}
    hostname = request.get("hostname").lower()
    _check_hostname(core, hostname, machine, problems)
    no_choice = ["Select a valid choice. That choice is not one of the available choices."]
    zone = next((entry for entry in core.state.zones if entry.name == request.get("zone")), None)
    pool = next((entry for entry in core.state.pools if entry.name == request.get("pool")), None)
    for key, entry in (("zone", zone), ("pool", pool)):
        if request.has(key) and entry is None:
            problems[key] = no_choice
    architecture = _architecture(core, request, problems) if request.has("architecture") else machine.architecture
    if request.flag("enable_hw_sync"):
        problems["enable_hw_sync"] = ["Hardware sync is only supported for Linux based image deploys."]
    touches_power = any(key.startswith("power_") for key, _ in request.form)
    power_type = request.get("power_type", machine.power_type)
    parameters = _power(core, request, power_type, machine.power_parameters, problems) if touches_power else None
    if problems:
        raise ApiError(400, problems)
    machine.hostname = hostname or machine.hostname
    machine.description = request.get("description", machine.description)
    machine.architecture = architecture
    machine.zone = zone.id if zone else machine.zone
    machine.pool = pool.id if pool else machine.pool
    if parameters is not None:
        machine.power_type, machine.power_parameters = power_type, parameters
    return render(core.state, machine)


async def delete(core: Core, request: Request) -> Raw:
    """Forget a machine."""
    machine = find(core, request)
    lifecycle.must_edit(machine, request)
    del core.state.machines[machine.system_id]
    core.state.sets = {key: value for key, value in core.state.sets.items() if value.system_id != machine.system_id}
    return Raw("", 204)


async def power_parameters(core: Core, request: Request) -> Json:
    """The power parameters, password and all, for administrators."""
    machine = find(core, request)
    lifecycle.must_administer(request)
    return dict(machine.power_parameters)


async def all_power_parameters(core: Core, request: Request) -> Json:
    """Those of many machines at once, by ``id``."""
    lifecycle.must_administer(request)
    wanted = request.wanted("id")
    return {
        key: dict(machine.power_parameters)
        for key, machine in core.state.machines.items()
        if not wanted or key in wanted
    }


async def query_power_state(core: Core, request: Request) -> Json:
    """Ask the BMC."""
    return {"state": await core.query(find(core, request))}


async def allocate(core: Core, request: Request) -> Json:
    """Take a Ready machine that meets the constraints."""
    options = (
        "op",
        "agent_name",
        "comment",
        "verbose",
        "dry_run",
        "bridge_all",
        "bridge_type",
        "bridge_stp",
        "bridge_fd",
    )
    wanted: dict[str, list[str]] = {}
    for key, value in request.form:
        if key in options or not value:
            continue
        if key not in _CONSTRAINTS:
            raise refused(**{key: ["No such constraint."]})
        wanted.setdefault(key, []).append(value)
    candidates = [m for m in core.state.machines.values() if m.status == Status.READY and _matches(core, m, wanted)]
    if not candidates:
        if "system_id" in wanted:
            raise conflict(f"No machine with system ID {wanted['system_id'][0]} available.")
        resolved = " ".join(f"{key}={_resolved(key, values)}" for key, values in wanted.items())
        raise conflict(f'No available machine matches constraints: {list(wanted.items())!s} (resolved to "{resolved}")')
    machine = candidates[0]
    if not request.flag("dry_run"):
        machine.owner = request.user.username
        core.enter(machine, Status.ALLOCATED, quiet=True)
    return render(core.state, machine) | {"constraints_by_type": {}}


def _resolved(key: str, values: list[str]) -> str:
    return str(float(values[0])) if key in ("cpu_count", "mem") else ",".join(values)


async def list_allocated(core: Core, request: Request) -> list[Json]:
    """The caller's machines that are not deployed yet."""
    return [
        render(core.state, machine)
        for machine in core.state.machines.values()
        if machine.owner == request.user.username and machine.status == Status.ALLOCATED
    ]


async def release_many(core: Core, request: Request) -> list[str]:
    """Release several; those that are Ready are left out of the answer."""
    done = []
    for system_id in request.all("machines"):
        machine = core.state.machines.get(system_id)
        if machine and machine.status not in (Status.READY, Status.RELEASING):
            await lifecycle.release(core, machine, request)
            done.append(system_id)
    return done


async def set_annotations(core: Core, request: Request) -> Json:
    """Words of the owner's own on an acquired machine; an empty value takes one away."""
    machine = find(core, request)
    if machine.owner is None:
        raise conflict("Cannot set workload annotation: it hasn't been acquired.")
    lifecycle.must_edit(machine, request)
    for key, value in request.form:
        if key == "op":
            continue
        if value:
            machine.annotations[key] = value
        else:
            machine.annotations.pop(key, None)
    return render(core.state, machine)
