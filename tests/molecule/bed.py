"""What every Molecule scenario stands on: the node image, and the test bed's repository with two baselines in it.

``python tests/molecule/bed.py FOLDER`` fills FOLDER; it does nothing when that is up to date, and may be called by
scenarios that run side by side. The second baseline is newer than the packaged one, so that a role which does not
keep to its pinned version is found out.
"""

from __future__ import annotations

import asyncio
import fcntl
import sys
from pathlib import Path

from metalyard.plan.profile import Baseline, Profile
from metalyard.virtual import host, image, packages

NEWER = {
    "driver": ("570.195.03", "570.211.01"),
    "fabric_manager": ("570.195.03", "570.211.01"),
    "dcgm": ("4.4.1", "4.5.0"),
}
"""Field of the baseline to its version and a newer one."""


def newer(baseline: Baseline) -> Baseline:
    """The same baseline with each version moved on."""
    moves = [*NEWER.values(), ("1.17.8", "1.18.0")]
    versions = dict(baseline.packages)
    for old, new in moves:
        versions = {name: version.replace(old, new) for name, version in versions.items()}
    fields = {field: new for field, (_, new) in NEWER.items()}
    return baseline.model_copy(update={"name": "newer", "packages": versions, **fields})


def main(folder: Path) -> None:
    """Bring image and repository up to date."""
    profile = image.packaged(Profile, "profiles", "dgx-h100")
    baseline = image.packaged(Baseline, "baselines", image.DEFAULT_BASELINE)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        host.prepare()
        asyncio.run(packages.build(folder, profile, [baseline, newer(baseline)]))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: bed.py FOLDER")
    try:
        main(Path(sys.argv[1]).resolve())
    except (host.HostError, host.CommandError) as error:
        sys.exit(f"error: {error}")
