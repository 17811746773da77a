"""Reads evidence off a node: declared probes, run side by side, each with a deadline and a limit on its output.

Runs on the node with Python 3.8 or later and the standard library alone. It decides nothing: what the tools said goes
into one sealed document (the format is that of ``metalyard.gate.evidence``), and the controller judges it.

Nothing here hangs. A probe runs in its own process group, which is killed at the deadline; a child that survives the
kill (uninterruptible sleep: a hung driver, a dead file server) is left behind and its probe ends with ``timeout``.
"""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import base64
import collections
import contextlib
import datetime
import errno
import gzip
import hashlib
import io
import json
import os
import selectors
import signal
import subprocess
import threading
import time

FORMAT = 1
COLLECTOR = "1"
"""Version of the probes and of how they are run; goes into every document."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
STDERR_LIMIT = 16384
"""Bytes of standard error that are kept; the rest is read and dropped."""
KILL_PATIENCE = 1.0
"""Seconds that a killed probe gets to go before it is left behind."""
MIB = 1048576

Probe = collections.namedtuple("Probe", "name argv deadline limit")
"""name; command as a tuple; seconds; bytes of standard output."""

_GPU_FIELDS = (
    "index,name,uuid,serial,pci.bus_id,vbios_version,memory.total,temperature.gpu,power.draw,power.limit,"
    "pcie.link.gen.current,pcie.link.width.current,clocks.max.sm,clocks.max.memory,"
    "ecc.errors.uncorrected.volatile.total,ecc.errors.corrected.volatile.total,"
    "ecc.errors.uncorrected.aggregate.total,driver_version"
)
_PROCESSES = "ps -e -o state=,pid=,wchan:32=,comm="

PROBES = {
    "os": (
        Probe("gpus", ("nvidia-smi", "--query-gpu=" + _GPU_FIELDS, "--format=csv"), 45, MIB),
        Probe("gpu_query", ("nvidia-smi", "-q", "-x"), 60, 8 * MIB),
        Probe("nvlink", ("nvidia-smi", "nvlink", "-s"), 45, MIB),
        Probe("kernel_log", ("dmesg", "--time-format", "iso"), 30, 16 * MIB),
        Probe("ib", ("ibstat",), 30, MIB),
        Probe(
            "fabric_manager",
            (
                "systemctl",
                "show",
                "nvidia-fabricmanager",
                "--property=Id,LoadState,ActiveState,SubState,Result,NRestarts",
            ),
            15,
            65536,
        ),
        Probe("clock", ("chronyc", "-c", "tracking"), 15, 65536),
        Probe("cpu", ("lscpu", "-J"), 15, MIB),
        Probe("memory", ("dmidecode", "-t", "memory"), 30, 4 * MIB),
        Probe("drives", ("nvme", "list", "-o", "json"), 30, 4 * MIB),
        Probe("services", ("systemctl", "list-units", "--all", "--state=failed", "--output=json"), 15, MIB),
        Probe(
            "packages",
            ("dpkg-query", "-W", "-f=${db:Status-Abbrev}\\t${binary:Package}\\t${Version}\\n"),
            30,
            8 * MIB,
        ),
        Probe(
            "mounts",
            ("findmnt", "--json", "--list", "-o", "TARGET,SOURCE,FSTYPE,OPTIONS,SIZE,USE%"),
            15,
            4 * MIB,
        ),
        # Two looks, so that a process that merely waits for a disk for a moment is not called stuck. Names only: a
        # command line may hold a secret.
        Probe("processes", ("sh", "-c", _PROCESSES + " && echo -- && sleep 2 && " + _PROCESSES), 20, 8 * MIB),
    ),
    "fabric": (Probe("ibnetdiscover", ("ibnetdiscover",), 300, 64 * MIB),),
}
"""The probes of each kind of evidence."""


def canonical(document):
    """The bytes whose SHA-256 is the document's digest: sorted keys, no spaces, without ``digest`` itself."""
    body = {key: value for key, value in document.items() if key != "digest"}
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def seal(document):
    """The document with its digest."""
    return dict(document, digest=hashlib.sha256(canonical(document)).hexdigest())


def pack(document):
    """The sealed document as gzip-compressed JSON in base64, which travels through any transport unharmed."""
    raw = io.BytesIO()
    with gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as stream:
        stream.write(json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii"))
    return base64.b64encode(raw.getvalue()).decode("ascii")


def record(command, exit_status, stdout, stderr=b"", duration=0.0, error=None):
    """One probe's record: what came out, and how many bytes of what digest that was.

    ``stdout`` and ``stderr`` are bytes. Bytes that are not UTF-8 become lone surrogates, so that the text gives the
    same bytes back.
    """
    return {
        "command": list(command),
        "exit_status": exit_status,
        "duration": round(duration, 3),
        "stdout": stdout.decode("utf-8", "surrogateescape"),
        "stdout_bytes": len(stdout),
        "stdout_sha256": hashlib.sha256(stdout).hexdigest(),
        "stderr": stderr.decode("utf-8", "replace"),
        "error": error,
    }


def _environment():
    """What a probe sees: one language, one time zone, and a path that holds the administrator's tools."""
    keep = {key: value for key, value in os.environ.items() if key != "LANGUAGE" and not key.startswith("LC_")}
    return dict(keep, LC_ALL="C", LANG="C", TZ="UTC", PATH=PATH)


def _kill(process):
    """Kill a probe's whole process group, and wait a moment for it to go."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    # One that is still there is in uninterruptible sleep; Popen's own clean-up list reaps it whenever it wakes.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(KILL_PATIENCE)


def _read(process, limit, until):
    """Read both streams to their ends: (stdout, stderr, error)."""
    kept = {process.stdout: [], process.stderr: []}
    seen = {process.stdout: 0, process.stderr: 0}
    with selectors.DefaultSelector() as selector:
        for stream in kept:
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, selectors.EVENT_READ)
        error = None
        while selector.get_map() and error is None:
            left = until - time.monotonic()
            if left <= 0:
                error = "timeout"
                break
            for key, _events in selector.select(left):
                stream = key.fileobj
                try:
                    data = os.read(stream.fileno(), 65536)
                except BlockingIOError:
                    continue
                if not data:
                    selector.unregister(stream)
                    continue
                room = (limit if stream is process.stdout else STDERR_LIMIT) - seen[stream]
                kept[stream].append(data[: max(room, 0)])
                seen[stream] += len(data)
                if stream is process.stdout and seen[stream] > limit:
                    error = "truncated"
                    break
    return b"".join(kept[process.stdout]), b"".join(kept[process.stderr]), error


def run(probe, until=None):
    """Run one probe and return its record. ``until`` is a monotonic time that its deadline never goes beyond."""
    started = time.monotonic()
    end = started + probe.deadline
    if until is not None:
        end = min(end, until)
    try:
        process = subprocess.Popen(
            list(probe.argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env=_environment(),
            start_new_session=True,
        )
    except OSError as error:
        what = "missing" if error.errno == errno.ENOENT else "can't be run: " + (error.strerror or "OSError")
        return record(probe.argv, None, b"", b"", time.monotonic() - started, what)
    stdout, stderr, error = b"", b"", "failed"
    try:
        stdout, stderr, error = _read(process, probe.limit, end)
        if error is None:
            try:
                process.wait(max(end - time.monotonic(), 0.05))
            except subprocess.TimeoutExpired:
                error = "timeout"
    finally:
        # Also after a good end: nothing that the probe started may stay behind.
        _kill(process)
        process.stdout.close()
        process.stderr.close()
    status = process.returncode if error is None else None
    return record(probe.argv, status, stdout, stderr, time.monotonic() - started, error)


def choose(kind, names=None, extra=None):
    """The probes of a kind, or those of them that are named, and then ``extra``. ``ValueError`` names a bad name."""
    known = {probe.name: probe for probe in PROBES[kind]}
    if names:
        unknown = sorted(set(names) - set(known))
        if unknown:
            raise ValueError(
                "no probe named {0} in evidence of kind {1}; there are: {2}".format(
                    ", ".join(unknown), kind, ", ".join(known)
                )
            )
        chosen = [probe for probe in PROBES[kind] if probe.name in set(names)]
    else:
        chosen = list(PROBES[kind])
    for probe in extra or ():
        if not probe.argv:
            raise ValueError("the extra probe {0} has no command".format(probe.name))
        if probe.name in known or probe.name in {one.name for one in chosen}:
            raise ValueError("the extra probe {0} has the name of another one".format(probe.name))
        chosen.append(probe)
    return chosen


def collect(node, kind="os", probes=None, deadline=120.0, collected_at=None):
    """Run the probes side by side and return the sealed document. It is back soon after ``deadline`` seconds at most.

    A probe that could not even be given up on in time (its thread hangs in the kernel) is recorded as ``timeout``.
    """
    chosen = list(PROBES[kind] if probes is None else probes)
    began = time.monotonic()
    until = began + deadline
    when = collected_at or datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    results = {}
    lock = threading.Lock()

    def work(probe):
        try:
            done = run(probe, until)
        except Exception as error:  # one probe's defect is that probe's error, and not the end of the others
            done = record(probe.argv, None, b"", b"", time.monotonic() - began, "collector: " + type(error).__name__)
        with lock:
            results[probe.name] = done

    threads = [threading.Thread(target=work, args=(probe,), daemon=True) for probe in chosen]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(until + 2 * KILL_PATIENCE - time.monotonic(), 0))
    with lock:
        finished = dict(results)
    for probe in chosen:
        if probe.name not in finished:
            finished[probe.name] = record(probe.argv, None, b"", b"", time.monotonic() - began, "timeout")
    return seal(
        {
            "format": FORMAT,
            "kind": kind,
            "node": node,
            "collected_at": when,
            "collector": COLLECTOR,
            "probes": finished,
        }
    )


def summary(document):
    """Per probe what a person wants to see of it: exit status, error, seconds and bytes."""
    return {
        name: {
            "exit_status": probe["exit_status"],
            "error": probe["error"],
            "seconds": probe["duration"],
            "bytes": probe["stdout_bytes"],
        }
        for name, probe in sorted(document["probes"].items())
    }
