"""Derives Ansible's inventory from the plan: hosts, groups and their variables, as plain data. Pure."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from typing import Any

from metalyard.plan.catalogue import load_baseline
from metalyard.plan.model import Node, SitePlan
from metalyard.plan.profile import Baseline


@dataclass
class Inventory:
    """What an inventory plugin adds: variables of all, of hosts, and members of groups."""

    variables: dict[str, Any] = field(default_factory=dict)
    hosts: dict[str, dict[str, Any]] = field(default_factory=dict)
    groups: dict[str, list[str]] = field(default_factory=dict)

    def add(self, host: str, groups: list[str], variables: dict[str, Any]) -> None:
        """Add a host to its groups."""
        self.hosts[host] = variables
        for group in groups:
            self.groups.setdefault(group, []).append(host)


def group_name(kind: str, name: str) -> str:
    """A group's name as Ansible allows it: ``rack_r01``, ``profile_dgx_h100``."""
    return re.sub(r"[^A-Za-z0-9_]", "_", f"{kind}_{name}")


def derive(plan: SitePlan) -> Inventory:
    """The inventory: group ``fleet`` of all nodes, one group a rack, row, power feed and profile, and ``spares``."""
    baseline = load_baseline(plan)
    result = Inventory(
        variables={
            "metalyard_plan": str(plan.source),
            "metalyard_site": plan.site,
            "metalyard_state_dir": str(plan.state_dir),
            "ansible_python_interpreter": "/usr/bin/python3",
            **_role_variables(plan, baseline),
            **plan.variables,
        }
    )
    racks = {rack.name: rack for rack in plan.racks}
    for node in plan.nodes:
        rack = racks[node.rack]
        groups = ["fleet", group_name("rack", node.rack), group_name("profile", node.profile)]
        groups += [group_name("row", rack.row)] if rack.row else []
        groups += [group_name("power", rack.power)] if rack.power else []
        groups += ["spares"] if node.spare else []
        variables = {
            **_connection(plan, str(ipaddress.ip_interface(node.address).ip), plan.ssh.user),
            "metalyard_node": _node(node),
            **node.variables,
        }
        result.add(node.name, groups, variables)
    for host in plan.hosts:
        user = plan.fabric.sm_user if host.name in plan.fabric.hosts else plan.ssh.user
        result.add(host.name, host.groups, {**_connection(plan, host.address, user), **host.variables})
    return result


def _role_variables(plan: SitePlan, baseline: Baseline) -> dict[str, Any]:
    """What the roles take from plan and baseline; ``variables`` of the plan or of a node override each."""
    versions = dict(baseline.packages)
    mirror = plan.images.mirror
    ca = str(plan.path(plan.images.mirror_ca)) if plan.images.mirror_ca else None
    registries = sorted({reference.split("/")[0] for reference in plan.images.preload if "/" in reference})
    entry = {"url": mirror, **({"ca": ca} if ca else {})}
    return {
        "time_sync_servers": list(plan.bmc.ntp_servers),
        "gpu_driver_version": baseline.driver,
        "gpu_driver_package_versions": versions,
        "gpu_fabric_manager_version": baseline.fabric_manager,
        "gpu_fabric_manager_package_versions": versions,
        "dcgm_version": baseline.dcgm,
        "dcgm_package_versions": versions,
        "container_toolkit_package_versions": versions,
        "container_runtime_mirrors": [{"registry": name, **entry} for name in registries] if mirror else [],
        "container_images_preload": list(plan.images.preload),
    }


def _connection(plan: SitePlan, address: str, user: str) -> dict[str, Any]:
    """How Ansible reaches a host: keys of hosts are learnt once and kept with the site, not with the operator."""
    known_hosts = plan.state_dir / "known_hosts"
    return {
        "ansible_host": address,
        "ansible_port": plan.ssh.port,
        "ansible_user": user,
        "ansible_ssh_private_key_file": str(plan.path(plan.ssh.key)),
        "ansible_ssh_common_args": f"-o UserKnownHostsFile={known_hosts} -o StrictHostKeyChecking=accept-new",
        "ansible_become": True,
    }


def _node(node: Node) -> dict[str, Any]:
    return node.model_dump(mode="json", exclude={"variables"})
