"""NVLinks: that every GPU has all of them, and at full speed."""

from __future__ import annotations

from collections.abc import Iterator

from metalyard.gate.check import Subject, check
from metalyard.gate.finding import Finding, Owner
from metalyard.gate.parsers.common import ParseError
from metalyard.gate.parsers.nvidia import gpu_rows, nvlinks

NVLINK4_LINKS = 18
NVLINK4_FLOOR = 25.0
"""GB/s per link and direction: H100 SXM5 has 900 GB/s both ways over 18 links (NVIDIA's data sheet)."""


def _has_nvlinks(subject: Subject) -> bool:
    return subject.profile.gpu.count > 0 and subject.profile.gpu.nvlinks > 0


@check(
    "nvlink.links",
    needs=("nvlink",),
    tolerates_failure=True,
    applies=_has_nvlinks,
    owner=Owner.VENDOR,
    remedy="Restart the fabric manager, then reset the GPUs; a link that stays away is the GPU's or the NVSwitch's.",
    source="the node's profile; H100 SXM5: 18 links of 25 GB/s each way (NVIDIA's data sheet)",
)
def links(subject: Subject) -> Iterator[Finding]:
    """Count, state and speed of each GPU's links. A failed nvidia-smi is not 'no inactive link'."""
    expected = subject.profile.gpu.nvlinks
    found = nvlinks(subject.probe("nvlink"))
    serials: dict[str, str] = {}
    missing: set[str] = set()
    listed = subject.evidence["os"].probes.get("gpus")
    if listed is not None and listed.answered:
        try:
            rows, _ = gpu_rows(listed)
            serials = {row.values["uuid"]: row.serial for row in rows}
            missing = set(serials) - {gpu.uuid for gpu in found}
        except ParseError:
            serials = {}
    if not found:
        yield subject.unknown("nvidia-smi nvlink lists no GPU")
        return
    good = 0
    for gpu in found:
        part = f"gpu {gpu.index}"
        serial = serials.get(gpu.uuid, "")
        up = {link: speed for link, speed in gpu.links.items() if speed is not None}
        slow = {link: speed for link, speed in up.items() if expected == NVLINK4_LINKS and speed < NVLINK4_FLOOR}
        if len(up) != expected or len(gpu.links) > expected:
            down = sorted(set(range(expected)) - set(up))
            yield subject.failed(
                f"{part} has {len(up)} active NVLinks, expected {expected}"
                + (f" (not active: {', '.join(map(str, down))})" if up else ""),
                part=part,
                part_serial=serial,
                measured=f"{len(up)} links",
                expected=f"{expected} links",
            )
        elif slow:
            told = ", ".join(f"link {link} {speed:g} GB/s" for link, speed in slow.items())
            yield subject.failed(
                f"{part}: NVLinks below {NVLINK4_FLOOR:g} GB/s each way: {told}",
                part=part,
                part_serial=serial,
                measured=told,
                expected=f"at least {NVLINK4_FLOOR:g} GB/s",
            )
        else:
            good += 1
    if missing:
        yield subject.unknown(f"nvidia-smi nvlink says nothing of {len(missing)} GPUs that nvidia-smi lists")
    if good:
        yield subject.passed(f"{expected} NVLinks on each of {good} GPUs", measured=f"{good} GPUs, {expected} links")
