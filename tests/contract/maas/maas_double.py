"""A small rack for the region: BMCs that speak enough Redfish over TLS, machines that boot as the region says."""

import asyncio
import base64
import datetime
import ipaddress
import ssl

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

KEY = "consumer:token:secret"
HARDWARE = {
    "serial": "1660623000001",
    "vendor": "NVIDIA",
    "product": "DGXH100",
    "cpu_model": "Xeon",
    "cpu_sockets": 2,
    "dimms": [{"slot": "A1", "size_mib": 65536}],
    "drives": [{"device": "/dev/nvme0n1", "model": "PM9A3", "serial": "S1", "size_bytes": 960_000_000_000}],
}


def certificate(folder):
    """A self-signed certificate for 127.0.0.1; its path and its key's."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    cert = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    cert_path, key_path = folder / "bmc.pem", folder / "bmc.key"
    cert_path.write_bytes(cert.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    key_path.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    return cert_path, key_path


class Machine:
    """One machine with its BMC; the flags make one of them misbehave."""

    def __init__(self, mac):
        self.mac, self.password = mac, "calvin"
        self.region = None
        self.on = False
        self.target = None
        self.port = 0
        self.log = []
        self.boots = []
        self.broken_bmc = False
        self.fail_with = None
        self.hang = False
        self._etag = 1
        self._runner = None
        self._tasks = set()

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    async def start(self, cert, key):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        app = web.Application()
        app.router.add_route("*", "/redfish/v1/Systems", self.systems)
        app.router.add_get("/redfish/v1/Systems/DGX", self.system)
        app.router.add_patch("/redfish/v1/Systems/DGX", self.patch)
        app.router.add_post("/redfish/v1/Systems/DGX/Actions/ComputerSystem.Reset", self.reset)
        app.middlewares.append(self.guard)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=context).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self):
        for task in self._tasks:
            task.cancel()
        await self._runner.cleanup()

    @web.middleware
    async def guard(self, request, handler):
        self.log.append(f"{request.method} {request.path.rsplit('/redfish/v1/', 1)[-1]}")
        if self.broken_bmc:
            return web.Response(status=503)
        login = base64.b64encode(f"admin:{self.password}".encode()).decode()
        if request.headers.get("Authorization") != f"Basic {login}":
            return web.Response(status=401)
        return await handler(request)

    async def systems(self, request):
        return web.json_response({"Members": [{"@odata.id": "/redfish/v1/Systems/DGX"}]})

    async def system(self, request):
        state = {"@odata.etag": f'W/"{self._etag}"', "PowerState": "On" if self.on else "Off"}
        return web.json_response(state)

    async def patch(self, request):
        if request.headers.get("If-Match") != f'W/"{self._etag}"':
            return web.Response(status=412)
        boot = (await request.json())["Boot"]
        assert boot["BootSourceOverrideEnabled"] == "Once"
        self.target = boot["BootSourceOverrideTarget"]
        self._etag += 1
        return web.Response(status=204)

    async def reset(self, request):
        kind = (await request.json())["ResetType"]
        self.log[-1] = f"Reset {kind}"
        if kind in ("ForceOff", "GracefulShutdown"):
            self.on = False
        elif not self.on:
            self.on = True
            target, self.target = self.target, None
            if target == "Pxe":
                task = asyncio.create_task(self.boot())
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        return web.Response(status=204)

    async def boot(self):
        await asyncio.sleep(0.02)
        action = await self.region.boot(self.mac)
        self.boots.append(action)
        if self.hang:
            return
        await asyncio.sleep(0.05)
        if self.fail_with and action.kind in ("commission", "deploy"):
            await self.region.failed(self.mac, self.fail_with)
        elif action.kind == "commission":
            await self.region.commissioned(self.mac, HARDWARE)
        elif action.kind == "deploy":
            await self.region.deployed(self.mac)


class Secrets:
    """A secret store in memory."""

    def __init__(self, entries):
        self.entries = entries

    def read(self, name):
        return self.entries.get(name)

    def write(self, name, entry):
        self.entries[name] = entry
