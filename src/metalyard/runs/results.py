"""The run folder, and how one process that sweeps many hosts leaves each host its own result in it.

``runs/<run id>/sweep/<operation>/<host>.json`` holds a :class:`~metalyard.sweep.HostResult`. The task that follows
the sweep picks its host's up, so that Ansible's recap says per host ok, changed, failed or unreachable.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from metalyard.files import write_atomically
from metalyard.sweep import HostResult


@dataclass(frozen=True)
class RunFolder:
    """One run's folder below the site's state folder."""

    path: Path

    @classmethod
    def of(cls, state_dir: Path, run: str) -> RunFolder:
        """The folder of the run with that id; made when it is not there, for its owner only."""
        path = state_dir / "runs" / run
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        return cls(path)

    def sweep(self, operation: str) -> Path:
        """Folder of one sweep's results."""
        return self.path / "sweep" / operation

    def clear(self, operation: str, hosts: Iterable[str]) -> None:
        """Drop what an earlier sweep left, so that no old result is taken for a new one."""
        for host in hosts:
            (self.sweep(operation) / f"{host}.json").unlink(missing_ok=True)

    def progress(self, operation: str, host: str, text: str) -> None:
        """Add a line to the run's progress file, which whoever follows the run reads."""
        line = json.dumps({"at": time.time(), "operation": operation, "host": host, "text": text}, sort_keys=True)
        with (self.path / "progress.jsonl").open("a", encoding="utf-8") as stream:
            stream.write(line + "\n")

    def write(self, operation: str, result: HostResult) -> None:
        """Leave a host's result, whole or not at all."""
        target = self.sweep(operation) / f"{result.host}.json"
        write_atomically(target, json.dumps(asdict(result), sort_keys=True).encode())

    def read(self, operation: str, host: str) -> HostResult:
        """A host's result; a missing or broken one is a failure that says so, never a pass."""
        target = self.sweep(operation) / f"{host}.json"
        try:
            return HostResult(**json.loads(target.read_bytes()))
        except FileNotFoundError:
            seen = "left no result"
        except (ValueError, TypeError):
            seen = "left a result that can't be read"
        return HostResult(
            host=host,
            failed=True,
            message=f"{host}: the sweep '{operation}' {seen} in {target.parent}",
            next_step="Run the same command again; what was done already is not done twice.",
        )
