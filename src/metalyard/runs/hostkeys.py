"""SSH host keys of nodes: learnt at the first contact, kept with the site, and forgotten when a node is deployed anew.

A key that changes for any other reason stays refused: it is not the machine that was there before.
"""

from __future__ import annotations

import ipaddress
import subprocess
from collections.abc import Iterable

from metalyard.plan.model import SitePlan

SECONDS = 30
FILE = "known_hosts"


def forget(plan: SitePlan, hosts: Iterable[str]) -> list[str]:
    """Forget the keys of nodes that this run has deployed anew; the names of those that had one.

    OSError where ``ssh-keygen`` is missing or the file can't be written.
    """
    known = plan.state_dir / FILE
    forgotten = []
    for host in hosts if known.exists() else ():
        address = str(ipaddress.ip_interface(plan.node(host).address).ip)
        entry = address if plan.ssh.port == 22 else f"[{address}]:{plan.ssh.port}"
        command = ["ssh-keygen", "-f", str(known)]
        found = subprocess.run([*command, "-F", entry], capture_output=True, timeout=SECONDS, check=False)
        if found.returncode != 0:
            continue
        done = subprocess.run([*command, "-R", entry], capture_output=True, text=True, timeout=SECONDS, check=False)
        if done.returncode != 0:
            raise OSError(f"{host}: its old SSH host key can't be taken out of {known}: {done.stderr.strip()}")
        forgotten.append(host)
    return forgotten
