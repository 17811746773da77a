"""What a bring-up needs, looked at before anything is touched: plan, credentials, key, ledger, BMCs, MAAS.

Reads only. Each look has a deadline, and none stops the others.
"""

from __future__ import annotations

import asyncio
import shutil
import ssl
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from metalyard.ledger import Ledger, LedgerError
from metalyard.plan.catalogue import load_baseline
from metalyard.plan.model import Node, SecretRef, SitePlan
from metalyard.secrets import FileSecretStore, SecretsError, resolve
from metalyard.sweep import NodeError

SECONDS = 15.0
"""How long one BMC or the region may take to answer."""
PAUSE = 0.2
"""Between the client's tries: a look is done again soon enough."""
TOOLS = {
    "ssh": "Install it: sudo apt-get install openssh-client",
    "ansible-playbook": "Put the folder with Metalyard's own ansible-playbook on PATH, or install ansible-core.",
}


@dataclass(frozen=True)
class Look:
    """One thing looked at. ``outcome`` is ``ok``, ``failed`` or ``skipped``; ``seen`` is a short text."""

    kind: str
    about: str
    outcome: Literal["ok", "failed", "skipped"]
    seen: str
    next_step: str = ""


def at_hand(plan: SitePlan) -> list[Look]:
    """What the plan alone tells: it is read and whole already when this is called."""
    baseline = load_baseline(plan)
    profiles = sorted({node.profile for node in plan.nodes})
    things = [
        count(len(plan.nodes), "node"),
        count(len(plan.racks), "rack"),
        count(len(plan.switches), "switch", "switches"),
        count(len(plan.cables), "cable"),
    ]
    looks = [Look("plan", str(plan.source), "ok", ", ".join(things))]
    for name in profiles:
        users = sum(node.profile == name for node in plan.nodes)
        untested = baseline.profiles and name not in baseline.profiles
        if untested:
            seen = f"baseline {baseline.name} was tested with {', '.join(baseline.profiles)}, not with {name}"
            step = f"Name a baseline that was tested with {name}, or add it to this one's profiles once it is."
            looks.append(Look("profile", name, "failed", seen, step))
        else:
            looks.append(Look("profile", name, "ok", f"{count(users, 'node')}, baseline {baseline.name}"))
    return looks


def on_this_machine(plan: SitePlan) -> list[Look]:
    """Credentials, certificates, the SSH key, the ledger and tools of this controller."""
    return [
        _secret("BMC factory password", plan.bmc.factory_password, plan),
        _maas_key(plan),
        _store(plan),
        *_certificates(plan),
        _ssh_key(plan),
        _ledger(plan),
        *(_tool(name, step) for name, step in TOOLS.items()),
    ]


async def on_the_network(plan: SitePlan, nodes: Sequence[Node]) -> list[Look]:
    """Every BMC's TCP, TLS and service root, and the MAAS region with this key."""
    region = asyncio.create_task(_region(plan))
    looks = await _bmcs(plan, nodes)
    return [*looks, await region]


def count(number: int, thing: str, things: str = "") -> str:
    """``1 node``, ``3 nodes``."""
    return f"{number} {thing if number == 1 else things or thing + 's'}"


def _guarded(kind: str, about: str, look: Callable[[], str], step: str = "") -> Look:
    """The look's own word, or what it raised."""
    try:
        return Look(kind, about, "ok", look())
    except (LedgerError, NodeError) as error:
        return Look(kind, about, "failed", error.message, error.next_step)
    except SecretsError as error:
        seen, _, advice = str(error).partition("; ")
        return Look(kind, about, "failed", seen, _sentence(advice) or step)
    except OSError as error:
        return Look(kind, about, "failed", f"{error.filename or about}: {error.strerror or error}", step)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _secret(about: str, ref: SecretRef, plan: SitePlan) -> Look:
    where = f"variable {ref.env}" if ref.env else f"file {ref.file}"

    def look() -> str:
        resolve(ref, plan)
        return f"found in {where}"

    return _guarded("credentials", about, look)


def _maas_key(plan: SitePlan) -> Look:
    def look() -> str:
        parts = resolve(plan.maas.key, plan).split(":")
        if len(parts) != 3 or not all(parts):
            raise SecretsError(
                f"found, but it has {count(len(parts), 'part')} between colons, expected consumer:token:secret; "
                "copy the whole key from MAAS (`maas apikey --username …`)"
            )
        return "found, of the form consumer:token:secret"

    return _guarded("credentials", "MAAS API key", look)


def _store(plan: SitePlan) -> Look:
    folder = plan.state_dir / "secrets"
    store = FileSecretStore(folder)

    def look() -> str:
        kept = sum(store.read(f"bmc/{node.name}") is not None for node in plan.nodes)
        return f"{kept} of {count(len(plan.nodes), 'BMC password')} kept" if kept else "empty: no BMC was set up yet"

    return _guarded("credentials", str(folder), look)


def _certificates(plan: SitePlan) -> list[Look]:
    named = [
        ("bmc.tls.ca", plan.bmc.tls.ca),
        ("maas.tls.ca", plan.maas.tls.ca),
        ("images.mirror_ca", plan.images.mirror_ca),
    ]
    return [_certificate(field, plan.path(file)) for field, file in named if file is not None]


def _certificate(field: str, file: Path) -> Look:
    def look() -> str:
        try:
            context = ssl.create_default_context(cafile=str(file))
        except ssl.SSLError:
            raise SecretsError(f"{file} holds no PEM certificate; put the authority's there") from None
        return f"{file.name}: {count(context.cert_store_stats()['x509_ca'], 'authority', 'authorities')}"

    return _guarded("certificates", field, look, f"Put the authority's PEM certificate at {file}.")


def _ssh_key(plan: SitePlan) -> Look:
    key = plan.path(plan.ssh.key)

    def look() -> str:
        mode = key.stat().st_mode
        if mode & 0o077:
            raise SecretsError(f"{key} can be read by others, and ssh refuses such a key; run `chmod 600 {key}`")
        public = key.with_name(key.name + ".pub")
        if not public.is_file():
            raise SecretsError(f"{public} does not exist; write it: `ssh-keygen -y -f {key} > {public}`")
        return f"{key}, {public.read_text(encoding='utf-8').split(' ')[0]}"

    return _guarded("ssh", "key", look, f"Make one: `ssh-keygen -t ed25519 -f {key}`, or name another as ssh.key.")


def _ledger(plan: SitePlan) -> Look:
    def look() -> str:
        with Ledger(plan.ledger_url, read_only=True, timeout=SECONDS) as ledger, ledger.read() as view:
            known = len(view.states())
            where = ledger.where
        return f"{where}: {count(known, 'node')} known" if known else f"{where}: empty, the first run begins it"

    return _guarded("ledger", "database", look)


def _tool(name: str, step: str) -> Look:
    found = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
    return Look("tools", name, "ok", found) if found else Look("tools", name, "failed", "not on PATH", step)


async def _bmcs(plan: SitePlan, nodes: Sequence[Node]) -> list[Look]:
    from metalyard.redfish.client import ROOT, Bmc, Patience
    from metalyard.redfish.connections import Connections
    from metalyard.redfish.errors import BmcError

    gate = asyncio.Semaphore(plan.bmc.concurrency)
    patience = Patience(tries=1, starting=0.0)

    async with Connections(plan) as connections:

        async def one(node: Node) -> Look:
            async with gate:
                try:
                    async with asyncio.timeout(SECONDS):
                        transport = connections.transport(node)
                        bmc = Bmc(
                            node.name, node.bmc.address, transport, min(SECONDS, plan.bmc.timeout), patience=patience
                        )
                        root = await bmc.get(ROOT)
                except BmcError as error:
                    if error.status == 401:
                        return Look("BMC", node.name, "ok", f"{node.bmc.address}: answers, to a login only")
                    return Look(
                        "BMC", node.name, "failed", error.message.removeprefix(f"{node.name}: "), error.next_step
                    )
                except TimeoutError:
                    seen = f"{node.bmc.address}: no answer within {SECONDS:.0f} s"
                    return Look(
                        "BMC", node.name, "failed", seen, "Check the BMC's network and bmc.address in the plan."
                    )
                except Exception as error:  # one BMC's surprise must not end the look at the others
                    seen = f"{node.bmc.address}: unexpected {type(error).__name__}: {error}"
                    return Look("BMC", node.name, "failed", seen, "This is a defect of Metalyard: report this line.")
            version = root.get("RedfishVersion") or "of unknown version"
            said = " ".join(str(root[field]) for field in ("Vendor", "Product") if root.get(field))
            return Look("BMC", node.name, "ok", f"{node.bmc.address}: Redfish {version}{f', {said}' if said else ''}")

        return list(await asyncio.gather(*(one(node) for node in nodes)))


async def _region(plan: SitePlan) -> Look:
    """Whether the region answers, and to this key."""
    from metalyard.maas.client import MaasClient
    from metalyard.maas.errors import MaasError

    url = plan.maas.url
    try:
        ca = plan.path(plan.maas.tls.ca) if plan.maas.tls.ca else None
        key = resolve(plan.maas.key, plan)
        async with asyncio.timeout(SECONDS), MaasClient(url, key, ca=ca, timeout=SECONDS, pause=PAUSE) as client:
            version = await client.call("GET", "version/")
            user = await client.whoami()
    except SecretsError:
        return Look("MAAS", url, "skipped", "not asked: its API key can't be read, see above")
    except MaasError as error:
        return Look("MAAS", url, "failed", error.message, error.next_step)
    except TimeoutError:
        seen = f"MAAS at {url} gave no answer within {SECONDS:.0f} s"
        return Look("MAAS", url, "failed", seen, "Check maas.url in the plan, the network and the region.")
    number = version.get("version", "of unknown version") if isinstance(version, dict) else "of unknown version"
    name = user.get("username", "?")
    if not user.get("is_superuser"):
        step = "Use an administrator's key: enlisting and power parameters need one."
        return Look("MAAS", url, "failed", f"MAAS {number}, user '{name}' is no administrator", step)
    return Look("MAAS", url, "ok", f"MAAS {number}, administrator '{name}'")
