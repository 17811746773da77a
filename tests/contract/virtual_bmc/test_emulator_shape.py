"""Every resource that the emulated DGX answers has the property names and types of recorded machines' resources."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import recorded_shapes
from recorded_shapes import Shape

from metalyard.virtual.bmc.config import BmcConfig
from metalyard.virtual.bmc.service import Bmc
from metalyard.virtual.bmc.standalone import SwitchedMachine, dgx_h100
from metalyard.virtual.bmc.state import Subscription

FROM_OTHERS = {
    # The recorded DGX shows of these no more than their annotations, or none at all: other vendors' count.
    "Drive": "the recording's drives hold annotations only",
    "Storage": "the recording's storage unit holds annotations only",
    "StorageCollection": "the recording's collection holds annotations only",
    "EventDestination": "the recording has no subscription",
    "EventDestinationCollection": "the recording has no subscription",
    "LogEntryCollection": "AMI leaves the context of embedded members out",
    "NetworkAdapter": "AMI leaves maker, model and serial out; MAAS and the ledger want them",
    "NetworkDeviceFunction": "the recording's InfiniBand functions hold no GUIDs",
    "MessageRegistry": "AMI's registry files have no annotations but their type",
}
BEYOND = {
    ("Task", "PercentComplete"): "NVIDIA's update guide shows it; the recorded tasks are resets, without progress",
    ("MessageRegistry", "@odata.etag"): "every resource here has an ETag",
}
LEFT_OUT = {
    # A smaller tree than the recorded one: services and details that nothing here stands behind.
    "ServiceRoot": {
        "CertificateService",
        "ComponentIntegrity",
        "Fabrics",
        "JsonSchemas",
        "Oem",
        "ServiceConditions",
        "TelemetryService",
    },
    "AccountService": {"ActiveDirectory", "AdditionalExternalAccountProviders", "LDAP", "Oem", "PrivilegeMap"},
    "ManagerAccount": {"Certificates"},
    "Task": {"EndTime"},
    "EventService": {
        "Oem",
        "RegistryPrefixes",
        "ResourceTypes",
        "SMTP",
        "SSEFilterPropertiesSupported",
        "ServerSentEventUri",
    },
    "SecureBoot": {"Actions", "SecureBootDatabases"},
    "EthernetInterface": {"IPv4Addresses"},
    "Processor": {"Metrics"},
    "Memory": {
        "Actions",
        "CacheSizeMiB",
        "EnvironmentMetrics",
        "FirmwareRevision",
        "LogicalSizeMiB",
        "MemorySubsystemControllerManufacturerID",
        "MemorySubsystemControllerProductID",
        "Metrics",
        "ModuleManufacturerID",
        "ModuleProductID",
        "NonVolatileSizeMiB",
        "OperatingMemoryModes",
        "PersistentRegionNumberLimit",
        "PersistentRegionSizeLimitMiB",
        "PersistentRegionSizeMaxMiB",
        "SecurityCapabilities",
        "VolatileRegionNumberLimit",
        "VolatileRegionSizeLimitMiB",
        "VolatileRegionSizeMaxMiB",
    },
    "NetworkDeviceFunction": {
        "AssignablePhysicalNetworkPorts",
        "AssignablePhysicalNetworkPorts@odata.count",
        "AssignablePhysicalPorts@odata.count",
        "BootMode@Redfish.AllowableValues",
        "Ethernet",
        "FibreChannel",
        "Links",
        "MaxVirtualFunctions",
        "NetDevFuncType@Redfish.AllowableValues",
        "VirtualFunctionsEnabled",
        "iSCSIBoot",
    },
    "PCIeDevice": {"PCIeFunctions"},
    "Chassis": {"Oem"},
    "Manager": {
        "Actions",
        "EthernetInterfaces",
        "LogServices",
        "NetworkProtocol",
        "Oem",
        "SerialConsole",
        "ServiceEntryPointUUID",
    },
    "ManagerNetworkProtocol": {"KVMIP", "SNMP", "VirtualMedia"},
    "UpdateService": {"Oem", "SoftwareInventory"},
    "SoftwareInventory": {"Oem"},
}
OPEN = {"Bios": "Attributes.", "AttributeRegistry": "RegistryEntries.", "MessageRegistry": "Messages."}
"""Parts whose names are data: attributes and messages."""


def bodies() -> Iterator[dict[str, Any]]:
    """One of everything that the emulated machine can answer."""
    hardware = dgx_h100()
    bmc = Bmc(BmcConfig("gpu-1", "127.0.0.1:0", lambda: hardware, SwitchedMachine("gpu-1", on=True)))
    bmc.state.log("Version Change", "HostBIOS_0 runs 1.6.7")
    bmc.state.new_task("Computer Reset")
    bmc.state.new_session(bmc.state.kept.accounts[0])
    bmc.state.kept.subscriptions.append(Subscription(id="1", destination="https://192.0.2.1/events"))
    bmc.state.changed()
    for resource in bmc.resources().values():
        if not resource.action and not resource.record.hidden and resource.record.on_get is None:
            yield json.loads(json.dumps(bmc.render(resource)))


@pytest.fixture(scope="module")
def dgx() -> Path:
    path = recorded_shapes.archive(recorded_shapes.DGX)
    if path is None:
        pytest.skip(recorded_shapes.REASON)
    return path


@pytest.fixture(scope="module")
def others() -> dict[str, Shape]:
    paths = [path for name in recorded_shapes.OTHERS if (path := recorded_shapes.archive(name)) is not None]
    if not paths:
        pytest.skip(recorded_shapes.REASON)
    return recorded_shapes.shapes(paths)


def test_names_and_types_are_the_recorded_ones(dgx: Path, others: dict[str, Shape]) -> None:
    known = recorded_shapes.shapes([dgx])
    wrong = []
    used = set()
    for body in bodies():
        kind = recorded_shapes.kind_of(body)
        for name, types in recorded_shapes.shape_of(body, {}).items():
            if kind in OPEN and name.startswith(OPEN[kind]):
                continue
            if (kind, name) in BEYOND:
                used.add((kind, name))
                continue
            seen = known.get(kind, {}).get(name)
            if seen is None and kind in FROM_OTHERS:
                used.add(kind)
                seen = others.get(kind, {}).get(name)
            if seen is None:
                wrong.append(f"{body['@odata.id']}: no recorded {kind} has {name}")
            elif not types <= seen | {"null"}:
                wrong.append(f"{body['@odata.id']}: {name} is {types}, recorded as {seen}")
    assert not wrong, "\n".join(wrong)
    assert used == set(FROM_OTHERS) | set(BEYOND), "an exception that is not needed any more"


def test_what_every_recorded_instance_has_is_there_or_listed(dgx: Path) -> None:
    always: dict[str, set[str]] = {}
    for name, data in recorded_shapes.files(dgx):
        if not name.endswith("/index.json"):
            continue
        body = json.loads(data)
        if "@odata.type" in body:
            keys = always.setdefault(str(body["@odata.type"]), set(body))
            keys &= set(body)
    missing: dict[str, set[str]] = {}
    for body in bodies():
        if gone := always.get(str(body["@odata.type"]), set()) - set(body):
            missing.setdefault(recorded_shapes.kind_of(body), set()).update(gone)
    assert missing == LEFT_OUT


def test_every_type_and_version_is_one_that_the_recording_answers_with(dgx: Path) -> None:
    versions = set()
    for name, data in recorded_shapes.files(dgx):
        if name.endswith("/index.json"):
            body = json.loads(data)
            versions.add(str(body.get("@odata.type")))
            for member in body.get("Members") or []:
                versions.add(str(member.get("@odata.type")))
    mine = {str(body["@odata.type"]) for body in bodies()}
    assert mine - versions == {"#EventDestination.v1_8_0.EventDestination"}
