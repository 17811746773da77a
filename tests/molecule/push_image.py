"""Pushes a small container image to a registry: ``push_image.py HOST:PORT CA-FILE NAME TAG TEXT``.

The image holds one file with TEXT, so that each text makes another digest, which is printed. Standard library only,
since it runs on a scenario's node.
"""

import gzip
import hashlib
import http.client
import io
import json
import ssl
import sys
import tarfile

KIND = "application/vnd.oci.image."


def digest(data):
    """The digest as registries write it."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def layer(text):
    """A tar archive with one file, the same for the same text."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        entry = tarfile.TarInfo("text")
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text.encode()))
    return stream.getvalue()


def part(kind, data):
    """How a manifest refers to a blob."""
    return {"mediaType": KIND + kind, "digest": digest(data), "size": len(data)}


class Registry:
    """One repository of a registry."""

    def __init__(self, host, ca, name):
        self.base = f"/v2/{name}"
        self.connection = http.client.HTTPSConnection(host, context=ssl.create_default_context(cafile=ca), timeout=30)

    def ask(self, method, path, data=b"", kind="application/octet-stream"):
        """One request; the answer's headers."""
        self.connection.request(method, path, data, {"Content-Type": kind})
        answer = self.connection.getresponse()
        said = answer.read()
        if answer.status >= 300:
            sys.exit(f"{method} {path}: {answer.status} {said.decode(errors='replace')}")
        return answer.headers

    def blob(self, data):
        """Upload one blob."""
        place = self.ask("POST", self.base + "/blobs/uploads/")["Location"]
        place = place[place.index(self.base) :]
        self.ask("PUT", f"{place}{'&' if '?' in place else '?'}digest={digest(data)}", data)


def main(host, ca, name, tag, text):
    """Upload layer, configuration and manifest."""
    plain = layer(text)
    packed = gzip.compress(plain, mtime=0)
    system = {"architecture": "amd64", "os": "linux", "config": {"Cmd": ["/text"]}}
    config = json.dumps({**system, "rootfs": {"type": "layers", "diff_ids": [digest(plain)]}}).encode()
    parts = {"config": part("config.v1+json", config), "layers": [part("layer.v1.tar+gzip", packed)]}
    manifest = json.dumps({"schemaVersion": 2, "mediaType": KIND + "manifest.v1+json", **parts}).encode()
    registry = Registry(host, ca, name)
    for data in (packed, config):
        registry.blob(data)
    registry.ask("PUT", f"{registry.base}/manifests/{tag}", manifest, KIND + "manifest.v1+json")
    print(digest(manifest))


if __name__ == "__main__":
    main(*sys.argv[1:])
