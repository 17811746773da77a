"""Sends a recorded request to the emulated region and holds the answer against the recorded one."""

import json
import time
import uuid
from urllib.parse import urlencode

import httpx
from maas_double import HARDWARE

from metalyard.virtual.maas import lifecycle
from metalyard.virtual.maas.model import Interface, MachineRecord
from metalyard.virtual.maas.status import Status

ADMIN_KEY, OTHER_KEY = "adminconsumer:admintoken:adminsecret", "bobconsumer:bobtoken:bobsecret"
S = Status
SYSTEM = {S.DEPLOYED, S.DEPLOYING, S.FAILED_DEPLOYMENT}
"""Statuses with an operating system and addresses."""


class Driver:
    """A BMC that does as it is told, or does not."""

    def __init__(self):
        self.state, self.trouble = "off", None

    async def query(self, parameters):
        if self.trouble:
            raise self.trouble
        return self.state

    async def change(self, parameters, change, booted=None):
        if self.trouble:
            raise self.trouble
        self.state = "on" if change == "on" else "off"
        return self.state

    async def close(self):
        pass


def place(region, system_id, number, status, *, owner="admin", **fields):
    """A machine as the recording's region had it: commissioned, unless it is New."""
    mac = f"52:54:00:00:00:{number:02x}"
    parameters = {
        "power_user": "root",
        "power_address": f"10.10.0.{100 + number}",
        "power_pass": "calvin",
        "node_id": "",
    }
    nic = Interface(region.state.next_id("interface"), "eth0", mac)
    machine = MachineRecord(system_id, f"gpu{number:03}", "amd64/generic", "redfish", parameters, [nic])
    region.state.machines[system_id] = machine
    if status not in (S.NEW, S.COMMISSIONING):
        machine.status = int(S.COMMISSIONING)
        machine.commissioning_set = region._core.begin(machine, 0, ["maas-lshw"])
        lifecycle.commissioned(region._core, machine, HARDWARE)
    machine.status = int(status)
    if status in SYSTEM:
        region._core.allot(machine)
    machine.owner = None if status in (S.NEW, S.READY) else owner
    for key, value in fields.items():
        setattr(machine, key, value)
    return machine


def sign(key):
    consumer, token, secret = key.split(":")
    fields = {
        "oauth_version": "1.0",
        "oauth_signature_method": "PLAINTEXT",
        "oauth_consumer_key": consumer,
        "oauth_token": token,
        "oauth_signature": f"%26{secret}",
        "oauth_timestamp": str(int(time.time())),
        "oauth_nonce": uuid.uuid4().hex,
    }
    return "OAuth " + ", ".join(f'{name}="{value}"' for name, value in fields.items())


async def replay(region, record, key=ADMIN_KEY):
    request = record["request"]
    headers = {"Accept": "application/json"}
    if "Authorization" in request["headers"] or record["name"].startswith("70"):  # those were recorded without
        headers["Authorization"] = sign(key)
    body = None
    if request.get("json") is not None:
        body, headers["Content-Type"] = json.dumps(request["json"]), "application/json"
    elif request.get("body") is not None:
        body, headers["Content-Type"] = request["body"], request["headers"].get("Content-Type", "")
    elif request.get("form") is not None:
        body = urlencode([tuple(pair) for pair in request["form"]])
        headers["Content-Type"] = "application/x-www-form-urlencoded"
    async with httpx.AsyncClient(timeout=20) as client:
        url = f"http://127.0.0.1:{region.port}{request['url']}"
        return await client.request(request["method"], url, content=body, headers=headers)


NULLABLE = {
    *("vendor", "product", "firmware_version", "discovered", "vlan", "boot_disk", "mount_options"),
    *("gateway_ip", "link_id", "hwe_kernel"),
    *("current_commissioning_result_id", "current_installation_result_id", "current_testing_result_id"),
}
"""What depends on a machine's history and hardware: null here where the recorded machine had more behind it."""


def differences(real, ours, where=""):
    """Where the shapes differ: keys, and the types of values. A null says nothing of the type."""
    if isinstance(real, dict) and isinstance(ours, dict):
        if where.endswith((".packages", ".parameters", ".params", "_annotations", ".owner_data")):
            return []  # free keys
        keys = [f"{where}: keys {sorted(set(real) ^ set(ours))} differ"] if set(real) != set(ours) else []
        return keys + [d for k in set(real) & set(ours) for d in differences(real[k], ours[k], f"{where}.{k}")]
    if isinstance(real, list) and isinstance(ours, list):
        return [d for a, b in zip(real[:1], ours[:1], strict=False) for d in differences(a, b, f"{where}[]")]
    name = where.rpartition(".")[2]
    if real is None or ours is None:
        wrong = ours is None and real is not None and name not in NULLABLE
        return [f"{where}: null here, {type(real).__name__} in the recording"] if wrong else []
    return [] if type(real) is type(ours) else [f"{where}: {type(ours).__name__}, recorded {type(real).__name__}"]


def compare(record, answer, *, values=()):
    real = record["response"]
    assert answer.status_code == real["status"], answer.text[:300]
    if "Content-Type" in real["headers"]:
        assert answer.headers["content-type"] == real["headers"]["Content-Type"]
    body = real.get("json")
    if real["status"] >= 400:
        expected = real["text"] or "" if body is None else body
        assert (answer.text if body is None else answer.json()) == expected
    elif body is not None:
        assert not differences(body, answer.json())
        for key in values:
            assert answer.json()[key] == body[key], key
