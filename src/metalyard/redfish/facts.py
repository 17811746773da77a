"""One picture of a machine, the same for every vendor: what it is, and which parts with which serial numbers it has.

Facts are plain JSON data. A value that the BMC does not give is None, and what could not be read stands in ``gaps``:
a reader takes both as unknown.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from metalyard.redfish.client import Bmc
from metalyard.redfish.documents import dig, health, link, links, name_of, number, state, text
from metalyard.redfish.layout import Layout, read_layout

Facts = dict[str, Any]
_Reader = Callable[[Bmc, Layout], Awaitable[Any]]


async def read_facts(bmc: Bmc, layout: Layout | None = None) -> Facts:
    """Read everything below, with the requests of one BMC bounded by its client.

    Keys: serial, serials (by where it stands), vendor, model, sku, uuid, power_state, health, bios_version,
    bmc_version, bios (attributes in force; None where the BMC shows none), firmware (inventory Id to version), cpus,
    gpus, dimms, drives, nics, interfaces (MAC addresses), psus, parts (kind, part, serial, model, firmware), gaps.
    """
    layout = layout or await read_layout(bmc)
    host = layout.host[1]
    readers: dict[str, _Reader] = {
        "processors": _processors,
        "dimms": _dimms,
        "drives": _drives,
        "nics": _nics,
        "interfaces": _interfaces,
        "psus": _psus,
        "firmware": _firmware,
        "bios": _bios,
    }
    read = dict(await bmc.each(readers, lambda name: readers[name](bmc, layout)))
    processors = read["processors"]
    facts: Facts = {
        "serials": serials(layout),
        "vendor": text(host, "Manufacturer") or text(layout.root, "Vendor"),
        "model": text(host, "Model") or _first(text(chassis[1], "Model") for chassis in layout.chassis),
        "sku": text(host, "SKU"),
        "uuid": text(host, "UUID"),
        "power_state": text(host, "PowerState"),
        "bios_version": text(host, "BiosVersion"),
        "bmc_version": text(layout.manager[1], "FirmwareVersion") if layout.manager else None,
        "health": health(host),
        "bios": read["bios"],
        "firmware": read["firmware"],
        "cpus": processors["CPU"],
        "gpus": processors["GPU"],
        "dimms": read["dimms"],
        "drives": read["drives"],
        "nics": read["nics"],
        "interfaces": read["interfaces"],
        "psus": read["psus"],
    }
    facts["serial"] = preferred_serial(bmc, facts["serials"])
    facts["parts"] = _parts(facts)
    facts["gaps"] = sorted(bmc.gaps)
    return facts


def serials(layout: Layout) -> dict[str, str]:
    """Every number that may be 'the serial' of this machine: of the system, its chassis, and its service tag."""
    found = {"system": text(layout.host[1], "SerialNumber"), "sku": text(layout.host[1], "SKU")}
    found |= {f"system {name_of(system, path)}": text(system, "SerialNumber") for path, system in layout.others}
    for path, chassis in layout.chassis:
        found.setdefault("chassis", text(chassis, "SerialNumber"))
        found[f"chassis {name_of(chassis, path)}"] = text(chassis, "SerialNumber")
    return {where: serial for where, serial in found.items() if serial is not None}


def preferred_serial(bmc: Bmc, found: dict[str, str]) -> str | None:
    """The one that people know the machine by: the chassis label, or the service tag where the vendor has one."""
    order = ("sku", "chassis", "system") if bmc.quirks.serial_is_sku else ("chassis", "system")
    return _first(found.get(where) for where in order)


async def _processors(bmc: Bmc, layout: Layout) -> dict[str, list[Facts]]:
    found: dict[str, list[Facts]] = {"CPU": [], "GPU": []}
    for _, system in layout.systems:
        for path, document in await bmc.resources(link(system, "Processors")):
            kind = text(document, "ProcessorType")
            if kind in found and state(document) != "Absent":
                found[kind].append(_processor(path, document))
    found["GPU"] = found["GPU"] or await _gpu_devices(bmc, layout)
    return found


def _processor(path: str, document: Facts) -> Facts:
    pcie = ("SystemInterface", "PCIe")
    return {
        **_part(path, document),
        "model": text(document, "Model") or text(document, "ProcessorId", "EffectiveFamily"),
        "cores": number(document, "TotalCores"),
        **_pcie(document, *pcie),
    }


async def _gpu_devices(bmc: Bmc, layout: Layout) -> list[Facts]:
    """GPUs of BMCs that list them as PCIe devices only. By the Id in the URI, so that hundreds need not be read."""
    pattern = re.compile(bmc.quirks.gpu_devices)
    found: list[Facts] = []
    for _, chassis in layout.chassis:
        paths = await bmc.members(link(chassis, "PCIeDevices"))
        chosen = [path for path in paths if pattern.search(path.rstrip("/").rsplit("/", 1)[-1])]
        for path, document in await bmc.documents(chosen):
            if state(document) != "Absent":
                part = _part(path, document)
                part["model"] = part["model"] or text(document, "Name")
                found.append({**part, "cores": None, **_pcie(document, "PCIeInterface")})
    return found


async def _dimms(bmc: Bmc, layout: Layout) -> list[Facts]:
    documents = await bmc.resources(link(layout.host[1], "Memory"))
    return [
        {
            **_part(path, document),
            "slot": text(document, "DeviceLocator") or name_of(document, path),
            "size_mib": number(document, "CapacityMiB"),
            "speed_mts": number(document, "OperatingSpeedMhz"),
        }
        for path, document in documents
        if state(document) != "Absent"
    ]


async def _drives(bmc: Bmc, layout: Layout) -> list[Facts]:
    """Drives by the system's storage and by the chassis: some BMCs fill only one of the two."""
    host = layout.host[1]
    paths: list[str] = []
    for _, storage in await bmc.resources(link(host, "Storage")):
        listed = links(storage, "Drives")
        paths += listed or await bmc.members(link(storage, "Drives"))
    for _, chassis in layout.chassis:
        paths += links(chassis, "Links", "Drives")
    found = []
    for path, document in await bmc.documents(_once(paths)):
        usb = text(document, "Protocol") == "USB" or name_of(document, path).upper().startswith("USB")
        if not usb and state(document) != "Absent":
            found.append(
                {
                    **_part(path, document),
                    "protocol": text(document, "Protocol"),
                    "size_bytes": number(document, "CapacityBytes"),
                }
            )
    return found


async def _nics(bmc: Bmc, layout: Layout) -> list[Facts]:
    collections = [link(chassis, "NetworkAdapters") for _, chassis in layout.chassis]
    found = []
    for collection in collections:
        for path, document in await bmc.resources(collection):
            controllers = dig(document, "Controllers")
            first = controllers[0] if isinstance(controllers, list) and controllers else None
            part = _part(path, document)
            part["firmware"] = part["firmware"] or text(first, "FirmwarePackageVersion")
            found.append({**part, **_pcie(first, "PCIeInterface")})
    return found


async def _interfaces(bmc: Bmc, layout: Layout) -> list[Facts]:
    return [
        {
            "id": name_of(document, path),
            "mac": (text(document, "PermanentMACAddress") or text(document, "MACAddress") or "").lower() or None,
            "link": text(document, "LinkStatus"),
            "speed_mbps": number(document, "SpeedMbps"),
        }
        for path, document in await bmc.resources(link(layout.host[1], "EthernetInterfaces"))
    ]


async def _psus(bmc: Bmc, layout: Layout) -> list[Facts]:
    found: list[Facts] = []
    for _, chassis in layout.chassis:
        subsystem = await bmc.find(link(chassis, "PowerSubsystem"))
        supplies = await bmc.resources(link(subsystem, "PowerSupplies"))
        if not supplies:  # the older form: one resource that holds them all
            power_path = link(chassis, "Power")
            power = await bmc.find(power_path)
            listed = dig(power, "PowerSupplies")
            supplies = [
                (f"{power_path}/PowerSupplies/{text(item, 'MemberId') or index}", item)
                for index, item in enumerate(listed if isinstance(listed, list) else [])
                if isinstance(item, dict)
            ]
        found += [
            {**_part(path, document), "capacity_watts": number(document, "PowerCapacityWatts")}
            for path, document in supplies
            if state(document) != "Absent"
        ]
    return found


async def _firmware(bmc: Bmc, layout: Layout) -> dict[str, str | None]:
    return {name: version for name, (_, version) in (await read_inventory(bmc, layout)).items()}


async def _bios(bmc: Bmc, layout: Layout) -> Facts | None:
    """Plain values only, and no password, should a BMC ever show one."""
    attributes = dig(await bmc.find(link(layout.host[1], "Bios")), "Attributes")
    if not isinstance(attributes, Mapping):
        return None
    return {
        name: value
        for name, value in attributes.items()
        if isinstance(value, (str, int)) and not re.search(r"(?i)passw|secret", name)
    }


async def read_inventory(bmc: Bmc, layout: Layout) -> dict[str, tuple[str, str | None]]:
    """The firmware inventory: Id to URI and version; a version that the BMC does not give is None."""
    service = await bmc.find(link(layout.root, "UpdateService"))
    return {
        name_of(document, path): (path, version_of(document))
        for path, document in await bmc.resources(link(service, "FirmwareInventory"))
    }


def version_of(document: object) -> str | None:
    """A version as written; ``0`` is one, an empty text is not."""
    value = dig(document, "Version")
    return value.strip() or None if isinstance(value, str) else None


def _part(path: str, document: object) -> Facts:
    """What every part has."""
    return {
        "id": name_of(document, path),
        "model": text(document, "Model"),
        "manufacturer": text(document, "Manufacturer"),
        "part_number": text(document, "PartNumber"),
        "serial": text(document, "SerialNumber"),
        "uuid": text(document, "UUID"),
        "firmware": text(document, "FirmwareVersion") or text(document, "Revision"),
        "health": health(document),
        "state": state(document),
    }


def _pcie(document: object, *path: str) -> Facts:
    return {
        "pcie_type": text(document, *path, "PCIeType"),
        "pcie_width": number(document, *path, "LanesInUse"),
        "pcie_max_type": text(document, *path, "MaxPCIeType"),
        "pcie_max_width": number(document, *path, "MaxLanes"),
    }


def _parts(facts: Facts) -> list[dict[str, str | None]]:
    """Every part that has a serial number: what the ledger follows."""
    kinds = {"cpu": "cpus", "gpu": "gpus", "dimm": "dimms", "drive": "drives", "nic": "nics", "psu": "psus"}
    parts: list[dict[str, str | None]] = []
    for where, serial in facts["serials"].items():
        if where not in ("sku", "chassis"):  # the chassis stands there by its name, too
            parts.append({"kind": where.split()[0], "part": where, "serial": serial, "model": facts["model"]})
    for kind, key in kinds.items():
        parts += [
            {"kind": kind, "part": item["id"], "serial": item["serial"], "model": item["model"]}
            | {"firmware": item["firmware"]}
            for item in facts[key]
            if item["serial"]
        ]
    return [{"firmware": None, **part} for part in parts]


def _once(paths: Iterable[str]) -> list[str]:
    """Each resource once: iLO links to the same one with and without a slash at the end, and in either case."""
    return list({path.rstrip("/").lower(): path for path in paths}.values())


def _first(values: Iterable[str | None]) -> str | None:
    return next((value for value in values if value), None)
