"""Faults of a BMC's answers: which requests they meet, how often, and what happens to those.

A fault is data, so that a scenario file can hold it and a running BMC can be given one.
"""

from __future__ import annotations

import re
from typing import Any, Literal
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, field_validator

Kind = Literal["status", "delay", "reset", "truncate", "stale", "lost_task", "hang", "unavailable"]


class BmcFault(BaseModel):
    """One fault.

    ``status`` answers with ``status`` and a Redfish error; ``delay`` waits ``seconds`` and then answers;
    ``reset`` resets the connection, ``when`` before or after the request took effect; ``truncate`` cuts the JSON in
    half inside a whole HTTP answer; ``stale`` goes on answering GETs as at the moment the fault began; ``lost_task``
    accepts the request and answers 404 for its task; ``hang`` takes the request and never answers;
    ``unavailable`` answers 503 with ``Retry-After: seconds``.
    """

    model_config = ConfigDict(extra="forbid")

    kind: Kind
    path: str = Field(".*", description="regular expression that the whole path must match")
    verb: str = Field("*", description="GET, POST, PATCH, DELETE, or * for every one")
    count: int | None = Field(None, ge=1, description="how many requests it meets; None: every one")
    skip: int = Field(0, ge=0, description="how many matching requests go through before the first that it meets")
    status: int = Field(500, ge=400, le=599)
    seconds: float = Field(1.0, ge=0, le=3600)
    when: Literal["before", "after"] = "before"
    message: str = Field("GeneralError", description="name of the message in the Base registry")
    id: str = Field(default_factory=lambda: uuid4().hex[:8])

    @field_validator("path")
    @classmethod
    def _expression(cls, value: str) -> str:
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from error
        return value

    @field_validator("verb")
    @classmethod
    def _upper(cls, value: str) -> str:
        return value.upper()

    def meets(self, verb: str, path: str) -> bool:
        """Whether it concerns this request, whatever its count says. A stale inventory is about reads only."""
        if self.kind == "stale" and verb not in ("GET", "HEAD"):
            return False
        return self.verb in ("*", verb) and re.fullmatch(self.path, path) is not None


class FaultList:
    """The faults of one BMC, and how often each has been met."""

    def __init__(self) -> None:
        self._faults: dict[str, BmcFault] = {}
        self._seen: dict[str, int] = {}
        self.frozen: dict[str, dict[str, Any]] = {}
        """Bodies by path as they were when a ``stale`` fault began."""

    def add(self, fault: BmcFault) -> str:
        """Begin a fault; returns its id, under which it ends."""
        self._faults[fault.id] = fault
        self._seen[fault.id] = 0
        return fault.id

    def remove(self, fault_id: str | None = None) -> int:
        """End one fault, or all; returns how many ended."""
        ids = [fault_id] if fault_id is not None else list(self._faults)
        ended = [one for one in ids if self._faults.pop(one, None) is not None]
        if not any(fault.kind == "stale" for fault in self._faults.values()):
            self.frozen.clear()
        return len(ended)

    def listed(self) -> list[dict[str, Any]]:
        """Each fault as data, with how many matching requests it has seen."""
        return [{**fault.model_dump(), "seen": self._seen[fault.id]} for fault in self._faults.values()]

    def take(self, verb: str, path: str) -> list[BmcFault]:
        """The faults that meet this request, in the order they were given; each one counts it."""
        met = []
        for fault in list(self._faults.values()):
            if not fault.meets(verb, path):
                continue
            self._seen[fault.id] += 1
            number = self._seen[fault.id] - fault.skip
            if number < 1:
                continue
            met.append(fault)
            if fault.count is not None and number >= fault.count:
                # What is frozen stays: this very request may still have to be answered from it.
                del self._faults[fault.id]
        return met
