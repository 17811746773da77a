"""The cloud-init user data of a node: the account that the later stages come in by, its name, and a marker."""

from __future__ import annotations

import hashlib

import yaml

from metalyard.maas.errors import MaasError
from metalyard.plan.model import Node, SitePlan

MARKER = "/etc/metalyard/node"
"""A file on the node that says which node of which site it was deployed as."""


def public_key(plan: SitePlan) -> str:
    """The public half of ``ssh.key``, from the file beside it; an error names the file and the next step."""
    path = plan.path(plan.ssh.key)
    path = path.with_name(f"{path.name}.pub")
    try:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise MaasError(
            f"the SSH public key {path} can't be read: {why}",
            f"Make it with `ssh-keygen -y -f {path.with_suffix('')} > {path}`, or correct ssh.key in the plan.",
        ) from None
    if len(lines) != 1 or len(lines[0].split()) < 2 or "PRIVATE KEY" in lines[0]:
        raise MaasError(f"{path} is not an SSH public key of one line", "Correct ssh.key in the plan.")
    return lines[0].strip()


def build(plan: SitePlan, node: Node, key: str) -> bytes:
    """The same bytes for the same plan: a change of them is a change of the plan."""
    document = {
        "hostname": node.name,
        "preserve_hostname": False,
        "manage_etc_hosts": "localhost",
        "ssh_pwauth": False,
        "disable_root": plan.ssh.user != "root",
        "users": [
            {
                "name": plan.ssh.user,
                "gecos": "Metalyard",
                "groups": ["sudo"],
                "shell": "/bin/bash",
                "sudo": "ALL=(ALL) NOPASSWD:ALL",
                "lock_passwd": True,
                "ssh_authorized_keys": [key],
            }
        ],
        "write_files": [
            {
                "path": MARKER,
                "owner": "root:root",
                "permissions": "0644",
                "content": f"site: {plan.site}\nnode: {node.name}\n",
            }
        ],
    }
    return b"#cloud-config\n" + yaml.safe_dump(document, sort_keys=False, width=1000).encode()


def digest(data: bytes) -> str:
    """A short name for user data, which MAAS keeps and never shows again."""
    return hashlib.sha256(data).hexdigest()[:16]
