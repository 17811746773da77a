# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads a Metalyard site plan as an inventory."""

from __future__ import annotations

DOCUMENTATION = r"""
name: site
short_description: Reads a Metalyard site plan as an inventory
version_added: 0.1.0
author: The Metalyard developers
description:
  - Derives hosts, groups and connection variables from a site plan, the same file that C(metalyard) reads.
  - The plan is checked as a whole; each error names file, line and field.
  - Every node is in the group V(fleet), in one group for its rack, row, power feed and profile,
    and in V(spares) where the plan says so. Other hosts of the plan are in the groups the plan gives them.
requirements:
  - The Python package C(metalyard) on the controller.
options:
  plugin:
    description: Marks the file as a site plan.
    type: str
    required: true
    choices: [metalyard.fleet.site]
notes:
  - All further keys are the plan's; C(metalyard init) writes a plan with a comment for each.
"""

EXAMPLES = r"""
# inventory/hall-a/site.yml
plugin: metalyard.fleet.site
schema: 1
site: hall-a
baseline: 2026.11-h100
# racks, nodes, cables and so on follow
"""

from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin

from ansible_collections.metalyard.fleet.plugins.plugin_utils.package import metalyard


class InventoryModule(BaseInventoryPlugin):
    """Translates the derived inventory into Ansible's."""

    NAME = "metalyard.fleet.site"
    # The operator's own plan, like any YAML inventory: its variables may be templates.
    trusted_by_default = True

    def verify_file(self, path):
        """Whether the file can be a site plan, by its name."""
        return super().verify_file(path) and str(path).endswith((".yml", ".yaml"))

    def parse(self, inventory, loader, path, cache=True):
        """Add the plan's hosts and groups."""
        super().parse(inventory, loader, path, cache)
        plan_room = metalyard("metalyard.plan")
        try:
            derived = metalyard("metalyard.plan.inventory").derive(plan_room.load_plan(path))
        except plan_room.PlanError as error:
            raise AnsibleParserError(f"The site plan can't be used:\n{error}") from None
        for name, value in derived.variables.items():
            self.inventory.set_variable("all", name, value)
        for host, variables in derived.hosts.items():
            self.inventory.add_host(host)
            for name, value in variables.items():
                self.inventory.set_variable(host, name, value)
        for group, hosts in derived.groups.items():
            self.inventory.add_group(group)
            for host in hosts:
                self.inventory.add_child(group, host)
