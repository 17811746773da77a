"""The API's smaller things: tags, pools, zones, users, scripts, results, events, images, settings."""

from __future__ import annotations

import json
import re
import time
from typing import Any

from metalyard.virtual.maas import render
from metalyard.virtual.maas.core import Core
from metalyard.virtual.maas.lifecycle import must_administer
from metalyard.virtual.maas.machines import find
from metalyard.virtual.maas.model import Named, Script, Tag
from metalyard.virtual.maas.reply import ApiError, Raw, Request, not_found, refused

Json = dict[str, Any]
CAPABILITIES = [
    "networks-management",
    "static-ipaddresses",
    "ipv6-deployment-ubuntu",
    "devices-management",
    "storage-deployment-ubuntu",
    "network-deployment-ubuntu",
    "bridging-interface-ubuntu",
    "bridging-automatic-ubuntu",
    "authenticate-api",
]
LEVELS = ("AUDIT", "CRITICAL", "DEBUG", "ERROR", "INFO", "WARNING")
_RANK = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40, "CRITICAL": 50, "AUDIT": 0}


async def version(core: Core, request: Request) -> Json:
    """The version, for everybody."""
    return {"capabilities": CAPABILITIES, "version": "3.7.3", "subversion": ""}


# Users


async def whoami(core: Core, request: Request) -> Json:
    """The caller."""
    return render.user(request.user)


async def list_users(core: Core, request: Request) -> list[Json]:
    """All users."""
    return [render.user(user) for user in core.state.users]


async def read_user(core: Core, request: Request) -> Json:
    """One user."""
    user = core.user(request.args["username"])
    if user is None:
        raise not_found("User")
    return render.user(user)


async def list_sshkeys(core: Core, request: Request) -> list[Json]:
    """The caller's keys: none, the user data brings them."""
    return []


async def list_tokens(core: Core, request: Request) -> list[Json]:
    """The caller's own API keys."""
    return [{"name": "MAAS consumer", "token": request.user.key}]


# Tags


def _tag(core: Core, request: Request) -> Tag:
    tag = core.state.tags.get(request.args["name"])
    if tag is None:
        raise not_found("Tag")
    return tag


async def list_tags(core: Core, request: Request) -> list[Json]:
    """All tags."""
    return [render.tag(tag) for tag in core.state.tags.values()]


async def read_tag(core: Core, request: Request) -> Json:
    """One tag."""
    return render.tag(_tag(core, request))


async def create_tag(core: Core, request: Request) -> Json:
    """A tag; its definition is kept and not matched against hardware."""
    must_administer(request)
    name = request.get("name")
    _tag_fields(request, name)
    if name in core.state.tags:
        raise refused(name=["Tag with this Name already exists."])
    tag = Tag(name, request.get("definition"), request.get("comment"), request.get("kernel_opts"))
    core.state.tags[name] = tag
    return render.tag(tag)


def _tag_fields(request: Request, name: str) -> None:
    if not re.fullmatch(r"[a-zA-Z0-9_-]+", name):
        raise refused(name=["Enter a valid value." if name else "This field is required."])
    definition = request.get("definition")
    if definition.count("[") != definition.count("]") or definition.count("(") != definition.count(")"):
        raise refused(definition=["Invalid xpath expression: Invalid expression"])


async def update_tag(core: Core, request: Request) -> Json:
    """Change a tag, its name too."""
    must_administer(request)
    tag = _tag(core, request)
    _tag_fields(request, request.get("name", tag.name))
    old, tag.name = tag.name, request.get("name", tag.name)
    tag.definition = request.get("definition", tag.definition)
    tag.comment = request.get("comment", tag.comment)
    tag.kernel_opts = request.get("kernel_opts", tag.kernel_opts)
    core.state.tags = {entry.name: entry for entry in core.state.tags.values()}
    for machine in core.state.machines.values():
        machine.tags = [tag.name if name == old else name for name in machine.tags]
    return render.tag(tag)


async def delete_tag(core: Core, request: Request) -> Raw:
    """Forget a tag, on machines too."""
    must_administer(request)
    tag = _tag(core, request)
    del core.state.tags[tag.name]
    for machine in core.state.machines.values():
        machine.tags = [name for name in machine.tags if name != tag.name]
    return Raw("", 204)


async def tag_machines(core: Core, request: Request) -> list[Json]:
    """The machines with a tag."""
    tag = _tag(core, request)
    return [render.machine(core.state, m) for m in core.state.machines.values() if tag.name in m.tags]


async def update_nodes(core: Core, request: Request) -> Json:
    """Put a tag on machines and take it off; ids nobody has are passed over in silence."""
    must_administer(request)
    tag = _tag(core, request)
    added = removed = 0
    for system_id in request.all("add"):
        machine = core.state.machines.get(system_id)
        if machine is not None:
            added += 1
            if tag.name not in machine.tags:
                machine.tags.append(tag.name)
    for system_id in request.all("remove"):
        machine = core.state.machines.get(system_id)
        if machine is not None:
            removed += 1
            machine.tags = [name for name in machine.tags if name != tag.name]
    return {"added": added, "removed": removed}


# Pools and zones


async def list_pools(core: Core, request: Request) -> list[Json]:
    """All pools."""
    return [render.pool(entry) for entry in core.state.pools]


def _pool(core: Core, request: Request) -> Named:
    entry = next((pool for pool in core.state.pools if str(pool.id) == request.args["id"]), None)
    if entry is None:
        raise not_found("ResourcePool")
    return entry


async def create_pool(core: Core, request: Request) -> Json:
    """A pool."""
    must_administer(request)
    name = request.get("name")
    if not name:
        raise refused(name=["This field is required."])
    if any(entry.name == name for entry in core.state.pools):
        raise refused(name=["Resource pool with this Name already exists."])
    entry = Named(core.state.next_id("pool"), name, request.get("description"))
    core.state.pools.append(entry)
    return render.pool(entry)


async def read_pool(core: Core, request: Request) -> Json:
    """One pool."""
    return render.pool(_pool(core, request))


async def update_pool(core: Core, request: Request) -> Json:
    """Rename or describe a pool."""
    must_administer(request)
    entry = _pool(core, request)
    entry.name = request.get("name") or entry.name
    entry.description = request.get("description", entry.description)
    return render.pool(entry)


async def delete_pool(core: Core, request: Request) -> Raw:
    """Forget a pool; its machines fall back to the default one."""
    must_administer(request)
    entry = _pool(core, request)
    if entry.id == 0:
        raise ApiError(400, "This is the default pool, it cannot be deleted.")
    core.state.pools.remove(entry)
    for machine in core.state.machines.values():
        machine.pool = 0 if machine.pool == entry.id else machine.pool
    return Raw("", 204)


async def list_zones(core: Core, request: Request) -> list[Json]:
    """All zones."""
    return [render.zone(entry) for entry in core.state.zones]


def _zone(core: Core, request: Request) -> Named:
    entry = next((zone for zone in core.state.zones if zone.name == request.args["name"]), None)
    if entry is None:
        raise not_found("Zone")
    return entry


async def create_zone(core: Core, request: Request) -> Json:
    """A zone."""
    must_administer(request)
    name = request.get("name")
    if not name:
        raise refused(name=["This field is required."])
    if any(entry.name == name for entry in core.state.zones):
        raise refused(name=["Physical zone with this Name already exists."])
    entry = Named(core.state.next_id("zone", 2), name, request.get("description"))
    core.state.zones.append(entry)
    return render.zone(entry)


async def read_zone(core: Core, request: Request) -> Json:
    """One zone."""
    return render.zone(_zone(core, request))


async def delete_zone(core: Core, request: Request) -> Raw:
    """Forget a zone; its machines fall back to the default one."""
    must_administer(request)
    entry = _zone(core, request)
    if entry.id == 1:
        raise ApiError(400, "This zone is the default zone, it cannot be deleted.")
    core.state.zones.remove(entry)
    for machine in core.state.machines.values():
        machine.zone = 1 if machine.zone == entry.id else machine.zone
    return Raw("", 204)


# Scripts and results


async def list_scripts(core: Core, request: Request) -> list[Json]:
    """All scripts."""
    return [render.script(entry) for entry in core.state.scripts]


def _script(core: Core, request: Request) -> Script:
    entry = next((script for script in core.state.scripts if script.name == request.args["name"]), None)
    if entry is None:
        raise not_found("Script")
    return entry


async def create_script(core: Core, request: Request) -> Json:
    """Upload a script; what its metadata block says is taken."""
    must_administer(request)
    content = request.get("script")
    if not content:
        raise refused(script=["Must be given a value"])
    meta = dict(re.findall(r"^# (\w+): (.+)$", content, re.MULTILINE))
    testing = meta.get("script_type", request.get("type", "testing")).startswith("test")
    kinds = {name.lower(): number for number, name in render.HARDWARE_TYPES.items()}
    hardware = kinds.get(meta.get("hardware_type", "node"), 0)
    tags = [tag.strip() for tag in meta.get("tags", "").split(",") if tag.strip()]
    entry = Script(
        core.state.next_id("script"),
        request.get("name") or meta.get("name", ""),
        2 if testing else 0,
        hardware,
        title=meta.get("title", ""),
        description=meta.get("description", ""),
        tags=[*tags, render.HARDWARE_TYPES[hardware].lower()],
        timeout=meta.get("timeout", "0:00:00").removeprefix("0"),
        content=content,
        created=round(time.time(), 3),
    )
    if any(script.name == entry.name for script in core.state.scripts):
        raise refused(name=["Script with this Name already exists."])
    core.state.scripts.append(entry)
    return render.script(entry)


async def read_script(core: Core, request: Request) -> Json:
    """One script."""
    return render.script(_script(core, request))


async def download_script(core: Core, request: Request) -> Raw:
    """Its text."""
    return Raw(_script(core, request).content, kind="application/binary")


async def delete_script(core: Core, request: Request) -> Raw:
    """Forget a script."""
    must_administer(request)
    entry = _script(core, request)
    if entry.default:
        raise ApiError(400, "Unable to delete default script")
    core.state.scripts.remove(entry)
    return Raw("", 204)


async def list_results(core: Core, request: Request) -> list[Json]:
    """All results of a machine that stand."""
    machine = find(core, request)
    numbers = (machine.commissioning_set, machine.testing_set, machine.installation_set)
    return [render.script_set(core.state.sets[n]) for n in numbers if n is not None and n in core.state.sets]


async def read_results(core: Core, request: Request) -> Json:
    """One set, by number or as ``current-commissioning``, ``-testing``, ``-installation``."""
    machine = find(core, request)
    wanted = request.args["id"]
    named = {
        "current-commissioning": machine.commissioning_set,
        "current-testing": machine.testing_set,
        "current-installation": machine.installation_set,
    }
    number = named.get(wanted, int(wanted) if wanted.isdigit() else None)
    entry = core.state.sets.get(number) if number is not None else None
    if entry is None or entry.system_id != machine.system_id:
        raise not_found("ScriptSet")
    return render.script_set(entry)


async def query_events(core: Core, request: Request) -> Json:
    """The history, newest first."""
    level = (request.wanted("level") or ["INFO"])[-1]
    if level not in LEVELS:
        raise ApiError(400, f"Unrecognised log level: {level}")
    limit = int((request.wanted("limit") or ["100"])[-1])
    if limit > 1000:
        raise ApiError(400, f"Requested number of events {limit} is greater than limit: 1000")
    names = {key: machine.hostname for key, machine in core.state.machines.items()}
    ids, hosts = request.wanted("id"), request.wanted("hostname")
    after = int((request.wanted("after") or ["0"])[-1])
    before = int((request.wanted("before") or ["0"])[-1])
    found = [
        entry
        for entry in reversed(core.state.events)
        if _RANK[entry.level] >= _RANK[level]
        and (not ids or entry.system_id in ids)
        and (not hosts or names.get(entry.system_id) in hosts)
        and entry.id > after
        and (not before or entry.id < before)
    ][:limit]
    kept = [(k, v) for k, v in request.query if k not in ("after", "before")]
    base = f"{render.ROOT}/events/?" + "&".join(f"{key}={value}" for key, value in kept)
    newest, oldest = (found[0].id, found[-1].id) if found else (after, before)
    return {
        "count": len(found),
        "events": [render.event(entry, names.get(entry.system_id, "")) for entry in found],
        "next_uri": f"{base}&after={newest}",
        "prev_uri": f"{base}&before={oldest}",
    }


# Images, settings, power types


async def list_images(core: Core, request: Request) -> list[Json]:
    """All boot resources."""
    return [render.image(entry) for entry in core.state.images]


async def delete_image(core: Core, request: Request) -> Raw:
    """Forget an image: nothing of it can be deployed any more."""
    must_administer(request)
    entry = next((image for image in core.state.images if str(image.id) == request.args["id"]), None)
    if entry is None:
        raise not_found("BootResource")
    core.state.images.remove(entry)
    return Raw("", 204)


async def is_importing(core: Core, request: Request) -> bool:
    """Never: the images are rows."""
    return False


async def import_images(core: Core, request: Request) -> Raw:
    """Accepted; there is nothing to fetch."""
    must_administer(request)
    return Raw("Import of boot resources started", kind="text/plain; charset=utf-8")


async def get_config(core: Core, request: Request) -> Raw:
    """A setting."""
    name = (request.wanted("name") or [""])[-1]
    if name not in core.state.config:
        known = ", ".join(core.state.config)
        problem = {name: [f"{name} is not a valid config setting (valid settings are: {known})."]}
        raise ApiError(400, problem, kind="application/json")
    return Raw(json.dumps(core.state.config[name]), kind="application/json")


async def set_config(core: Core, request: Request) -> Raw:
    """Change a setting."""
    must_administer(request)
    name, value = request.get("name"), request.get("value")
    series = [image.name.split("/")[1] for image in core.state.images]
    if name == "default_distro_series" and value not in series:
        choices = ", ".join(f"'{entry}'" for entry in series)
        raise refused(**{name: [f"'{value}' is not a valid release.  It should be one of: {choices}."]})
    core.state.config[name] = value
    return Raw("OK")


async def power_types(core: Core, request: Request) -> list[Json]:
    """The power drivers and their fields; of the real region's many, those that a machine here can have."""
    labels = {
        "power_address": "Redfish address",
        "power_user": "Redfish user",
        "power_pass": "Redfish password",
        "node_id": "Node ID",
        "power_verify_ssl": "Verify SSL connections with system CA certificates",
    }
    types = []
    for name, fields in core.power_fields.items():
        if not name:
            continue
        described = []
        for field in fields:
            verify = field == "power_verify_ssl"
            described.append(
                {
                    "name": field,
                    "label": labels[field],
                    "required": field != "node_id",
                    "field_type": "password" if field == "power_pass" else "choice" if verify else "string",
                    "choices": [["n", "No"], ["y", "Yes"]] if verify else [],
                    "default": "n" if verify else "",
                    "scope": "node" if field == "node_id" else "bmc",
                    "secret": field == "power_pass",
                }
            )
        types.append(
            {
                "driver_type": "power",
                "name": name,
                "description": name.capitalize(),
                "fields": described,
                "missing_packages": [],
                "chassis": name == "redfish",
                "can_probe": False,
                "queryable": name == "redfish",
            }
        )
    return types
