"""The JSON shapes of MAAS's answers, key for key as a real 3.7.3 region gives them."""

from __future__ import annotations

import time
from typing import Any

from metalyard.virtual.maas.model import (
    BootImage,
    Drive,
    Event,
    Interface,
    Link,
    MachineRecord,
    Named,
    RegionState,
    Script,
    ScriptRun,
    ScriptSet,
    Subnet,
    Tag,
    User,
)
from metalyard.virtual.maas.status import NAMES

Json = dict[str, Any]
ROOT = "/MAAS/api/2.0"

RESULT_NAMES = {
    -1: "Unknown",
    0: "Pending",
    1: "Running",
    2: "Passed",
    3: "Failed",
    4: "Timed out",
    5: "Aborted",
    6: "Degraded",
}
TYPE_NAMES = {0: "Commissioning", 1: "Installation", 2: "Testing"}
HARDWARE_TYPES = {0: "Node", 1: "CPU", 2: "Memory", 3: "Storage", 4: "Network", 5: "GPU"}
PARTITION_OVERHEAD = 7700480
"""Bytes of a GPT disk that its one partition can't use."""


def machine(state: RegionState, record: MachineRecord) -> Json:
    """A machine, the whole of it."""
    nics = [interface(state, record, nic) for nic in record.interfaces]
    disks = [blockdevice(record, drive, index) for index, drive in enumerate(record.drives)]
    return {
        "ip_addresses": _addresses(record),
        "boot_interface": nics[0] if nics else None,
        "interface_set": nics,
        "physicalblockdevice_set": disks,
        "blockdevice_set": disks,
        "virtualblockdevice_set": [],
        "boot_disk": disks[0] if disks else None,
        "volume_groups": [],
        "raids": [],
        "bcaches": [],
        "cache_sets": [],
        "special_filesystems": [],
        "storage": round(sum(drive.size for drive in record.drives) / 1e6, 1),
        "node_type": 0,
        "node_type_name": "Machine",
        "zone": zone(next(entry for entry in state.zones if entry.id == record.zone)),
        "pool": pool(next(entry for entry in state.pools if entry.id == record.pool)),
        "domain": domain(),
        "memory": record.memory,
        "cpu_count": record.cpu_count,
        "cpu_speed": 0,
        "numanode_set": [
            {"index": 0, "memory": record.memory, "cores": list(range(record.cpu_count)), "hugepages_set": []}
        ],
        "hardware_info": _hardware_info(record),
        "hardware_uuid": record.hardware.get("uuid"),
        "status": int(record.status),
        "status_name": NAMES[record.status],
        "status_message": record.status_message,
        "status_action": record.status_action,
        "error_description": record.error_description,
        "power_state": record.power_state,
        "power_type": record.power_type,
        "netboot": record.netboot,
        "locked": record.locked,
        "owner": record.owner,
        "owner_data": dict(record.annotations),
        "workload_annotations": dict(record.annotations),
        "hostname": record.hostname,
        "fqdn": f"{record.hostname}.maas",
        "system_id": record.system_id,
        "description": record.description,
        "architecture": record.architecture,
        "tag_names": list(record.tags),
        "osystem": record.osystem,
        "distro_series": record.distro_series,
        "hwe_kernel": record.hwe_kernel,
        "min_hwe_kernel": record.min_hwe_kernel,
        "default_gateways": {
            "ipv4": {"gateway_ip": None, "link_id": None},
            "ipv6": {"gateway_ip": None, "link_id": None},
        },
        **_results(state, record),
        "current_commissioning_result_id": record.commissioning_set,
        "current_installation_result_id": record.installation_set,
        "current_testing_result_id": record.testing_set,
        "address_ttl": None,
        "bios_boot_method": None,
        "disable_ipv4": False,
        "enable_hw_sync": False,
        "enable_kernel_crash_dump": False,
        "ephemeral_deploy": False,
        "is_dpu": False,
        "last_sync": None,
        "next_sync": None,
        "sync_interval": None,
        "parent": None,
        "pod": None,
        "swap_size": None,
        "virtualmachine_id": None,
        "resource_uri": f"{ROOT}/machines/{record.system_id}/",
    }


def _results(state: RegionState, record: MachineRecord) -> Json:
    commissioning = _set_status(state, record.commissioning_set)
    testing = _set_status(state, record.testing_set)
    values = {"commissioning_status": commissioning, "testing_status": testing, "storage_test_status": testing}
    for part in ("cpu", "memory", "network", "interface", "other"):
        values[f"{part}_test_status"] = -1
    return {**values, **{f"{key}_name": RESULT_NAMES[value] for key, value in values.items()}}


def _set_status(state: RegionState, number: int | None) -> int:
    entry = state.sets.get(number) if number is not None else None
    return entry.status if entry and entry.runs else -1


def _hardware_info(record: MachineRecord) -> Json:
    keys = [
        "system_vendor",
        "system_product",
        "system_family",
        "system_version",
        "system_sku",
        "system_serial",
        "cpu_model",
        "mainboard_vendor",
        "mainboard_product",
        "mainboard_serial",
        "mainboard_version",
        "mainboard_firmware_vendor",
        "mainboard_firmware_date",
        "mainboard_firmware_version",
        "chassis_vendor",
        "chassis_type",
        "chassis_serial",
        "chassis_version",
    ]
    return {key: record.hardware.get(key, "Unknown") for key in keys}


def _addresses(record: MachineRecord) -> list[str]:
    configured = [link.ip_address for nic in record.interfaces for link in nic.links if link.ip_address]
    discovered = [nic.discovered for nic in record.interfaces if nic.discovered]
    return configured or discovered


def interface(state: RegionState, record: MachineRecord, nic: Interface) -> Json:
    """A NIC."""
    subnet = next((entry for entry in state.subnets if entry.vlan == nic.vlan), None)
    return {
        "mac_address": nic.mac_address,
        "id": nic.id,
        "discovered": [{"subnet": render_subnet(subnet), "ip_address": nic.discovered}]
        if nic.discovered and subnet
        else None,
        "link_connected": True,
        "vendor": nic.vendor,
        "interface_speed": nic.link_speed,
        "product": nic.product,
        "tags": list(nic.tags),
        "enabled": True,
        "type": "physical",
        "firmware_version": nic.firmware_version,
        "numa_node": 0,
        "parents": [],
        "links": [_link(state, link) for link in nic.links],
        "sriov_max_vf": 0,
        "name": nic.name,
        "effective_mtu": nic.mtu or 1500,
        "children": [],
        "params": {"mtu": nic.mtu} if nic.mtu else {},
        "link_speed": nic.link_speed,
        "vlan": vlan(nic.vlan) if nic.vlan is not None else None,
        "system_id": record.system_id,
        "resource_uri": f"{ROOT}/nodes/{record.system_id}/interfaces/{nic.id}/",
    }


def _link(state: RegionState, link: Link) -> Json:
    body: Json = {"id": link.id, "mode": link.mode}
    if link.ip_address:
        body["ip_address"] = link.ip_address
    subnet = next((entry for entry in state.subnets if entry.id == link.subnet), None)
    if subnet:
        body["subnet"] = render_subnet(subnet)
    return body


def vlan(number: int) -> Json:
    """A VLAN; the region has one fabric for each."""
    fabric = number - 5001
    return {
        "vid": 0,
        "mtu": 1500,
        "dhcp_on": False,
        "external_dhcp": None,
        "relay_vlan": None,
        "space": "undefined",
        "id": number,
        "name": "untagged",
        "secondary_rack": None,
        "fabric_id": fabric,
        "primary_rack": None,
        "fabric": f"fabric-{fabric}",
        "resource_uri": f"{ROOT}/vlans/{number}/",
    }


def fabric(number: int) -> Json:
    """A fabric with its one VLAN."""
    return {
        "class_type": None,
        "vlans": [vlan(number + 5001)],
        "id": number,
        "name": f"fabric-{number}",
        "resource_uri": f"{ROOT}/fabrics/{number}/",
    }


def render_subnet(entry: Subnet) -> Json:
    """A subnet."""
    return {
        "name": entry.name,
        "description": "",
        "vlan": vlan(entry.vlan),
        "cidr": entry.cidr,
        "rdns_mode": 2,
        "gateway_ip": entry.gateway_ip,
        "dns_servers": [],
        "allow_dns": True,
        "allow_proxy": True,
        "active_discovery": False,
        "managed": True,
        "disabled_boot_architectures": [],
        "space": "undefined",
        "id": entry.id,
        "resource_uri": f"{ROOT}/subnets/{entry.id}/",
    }


def blockdevice(record: MachineRecord, drive: Drive, index: int) -> Json:
    """A disk; the first one carries the root file system, as the flat layout leaves it."""
    uri = f"{ROOT}/nodes/{record.system_id}/blockdevices/{drive.id}/"
    boot = index == 0
    size = drive.size - PARTITION_OVERHEAD
    partition = {
        "uuid": drive.uuid,
        "size": size,
        "bootable": False,
        "tags": [],
        "id": drive.id,
        "path": f"/dev/disk/by-dname/{drive.name}-part1",
        "device_id": drive.id,
        "type": "partition",
        "filesystem": {
            "fstype": "ext4",
            "label": "root",
            "uuid": drive.uuid,
            "mount_point": "/",
            "mount_options": None,
        },
        "used_for": "ext4 formatted filesystem mounted at /",
        "system_id": record.system_id,
        "resource_uri": f"{ROOT}/nodes/{record.system_id}/blockdevices/{drive.id}/partition/{drive.id}",
    }
    return {
        "firmware_version": None,
        "used_size": size if boot else 0,
        "id": drive.id,
        "model": drive.model,
        "size": drive.size,
        "tags": list(drive.tags),
        "partition_table_type": "GPT" if boot else None,
        "partitions": [partition] if boot else [],
        "type": "physical",
        "storage_pool": None,
        "numa_node": 0,
        "uuid": None,
        "name": drive.name,
        "path": f"/dev/disk/by-dname/{drive.name}",
        "id_path": f"/dev/{drive.name}",
        "serial": drive.serial,
        "filesystem": None,
        "used_for": "GPT partitioned with 1 partition" if boot else "Unused",
        "available_size": 0 if boot else size,
        "block_size": 512,
        "system_id": record.system_id,
        "resource_uri": uri,
    }


def zone(entry: Named) -> Json:
    """A zone."""
    return {
        "name": entry.name,
        "description": entry.description,
        "id": entry.id,
        "resource_uri": f"{ROOT}/zones/{entry.name}/",
    }


def pool(entry: Named) -> Json:
    """A resource pool."""
    return {
        "name": entry.name,
        "description": entry.description,
        "id": entry.id,
        "resource_uri": f"{ROOT}/resourcepool/{entry.id}/",
    }


def domain() -> Json:
    """The region's one DNS domain."""
    return {
        "authoritative": True,
        "ttl": None,
        "id": 0,
        "name": "maas",
        "is_default": True,
        "resource_record_count": 0,
        "resource_uri": f"{ROOT}/domains/0/",
    }


def tag(entry: Tag) -> Json:
    """A tag."""
    return {
        "name": entry.name,
        "definition": entry.definition,
        "comment": entry.comment,
        "kernel_opts": entry.kernel_opts,
        "resource_uri": f"{ROOT}/tags/{entry.name}/",
    }


def user(entry: User) -> Json:
    """A user."""
    return {
        "is_superuser": entry.is_superuser,
        "username": entry.username,
        "email": entry.email,
        "is_local": True,
        "resource_uri": f"{ROOT}/users/{entry.username}/",
    }


def image(entry: BootImage) -> Json:
    """A row of boot-resources."""
    return {
        "id": entry.id,
        "type": entry.type,
        "name": entry.name,
        "architecture": f"amd64/{entry.kernel}",
        "resource_uri": f"{ROOT}/boot-resources/{entry.id}/",
        "last_deployed": None,
        "subarches": f"generic,{entry.kernel}",
    }


def script(entry: Script) -> Json:
    """A script."""
    return {
        "name": entry.name,
        "title": entry.title,
        "description": entry.description,
        "tags": list(entry.tags),
        "hardware_type": entry.hardware_type,
        "parallel": 0,
        "results": {},
        "parameters": {},
        "packages": {},
        "timeout": entry.timeout,
        "destructive": False,
        "default": entry.default,
        "for_hardware": [],
        "may_reboot": False,
        "recommission": False,
        "apply_configured_networking": False,
        "id": entry.id,
        "parallel_name": "Disabled",
        "hardware_type_name": HARDWARE_TYPES[entry.hardware_type],
        "type": entry.type,
        "type_name": f"{TYPE_NAMES[entry.type]} script",
        "history": [
            {
                "id": entry.id,
                "comment": "Created by maas-None" if entry.default else None,
                "created": stamp(entry.created),
            }
        ],
        "resource_uri": f"{ROOT}/scripts/{entry.name}",
    }


def script_set(entry: ScriptSet) -> Json:
    """The results of one commissioning, installation or testing."""
    started = min((run.started for run in entry.runs if run.started), default=None)
    done = entry.runs and all(run.ended for run in entry.runs)
    ended = max((run.ended or 0.0 for run in entry.runs), default=None) if done else None
    return {
        "id": entry.id,
        "started": stamp(started) if started else None,
        "runtime": duration(started, ended),
        "ended": stamp(ended) if ended else None,
        "type": entry.type,
        "status": entry.status,
        "results": [script_run(run) for run in entry.runs],
        "type_name": TYPE_NAMES[entry.type],
        "last_ping": stamp(ended) if ended and entry.type == 0 else None,
        "status_name": RESULT_NAMES[entry.status],
        "system_id": entry.system_id,
        "resource_uri": f"{ROOT}/nodes/{entry.system_id}/results/{entry.id}/",
    }


def script_run(run: ScriptRun) -> Json:
    """One script's result."""
    return {
        "id": run.id,
        "created": stamp(run.created),
        "updated": stamp(run.ended or run.started or run.created),
        "name": run.name,
        "status": run.status,
        "status_name": RESULT_NAMES[run.status],
        "exit_status": run.exit_status,
        "started": stamp(run.started) if run.started else None,
        "ended": stamp(run.ended) if run.ended else None,
        "runtime": duration(run.started, run.ended),
        "starttime": run.started if run.started else "",
        "endtime": run.ended if run.ended else "",
        "estimated_runtime": "0:00:30" if not run.ended else "0:00:00",
        "parameters": {},
        "script_id": run.script_id,
        "script_revision_id": run.script_id if run.ended else None,
        "suppressed": False,
    }


def event(entry: Event, hostname: str) -> Json:
    """A line of a machine's history."""
    return {
        "username": entry.username,
        "node": entry.system_id,
        "hostname": hostname,
        "id": entry.id,
        "level": entry.level,
        "created": time.strftime("%a, %d %b. %Y %H:%M:%S", time.gmtime(entry.created)),
        "type": entry.type,
        "description": entry.description,
    }


def stamp(seconds: float) -> str:
    """A time as MAAS writes it."""
    return time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(seconds))


def duration(started: float | None, ended: float | None) -> str:
    """``0:00:09``; empty while it is not over."""
    if started is None or ended is None:
        return ""
    whole = max(0, int(ended - started))
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
