"""Puts the collection into the wheel as ``ansible_collections/metalyard/fleet``.

An editable install gets nothing copied: it finds the collection through ``src/ansible_collections``,
a link to the checkout itself, so that it can never be stale.
"""

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

COLLECTION = "ansible_collections/metalyard/fleet"
PARTS = ("galaxy.yml", "README.md", "CHANGELOG.md", "LICENSES", "meta", "playbooks", "plugins", "roles")


class CollectionBuildHook(BuildHookInterface):
    """Adds the collection's parts to a standard wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Fill ``force_include`` for a standard wheel only."""
        if version == "editable":
            return
        for part in PARTS:
            build_data["force_include"][part] = f"{COLLECTION}/{part}"
