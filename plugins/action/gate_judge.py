# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judges the evidence of every host of the play."""

from __future__ import annotations

from ansible_collections.metalyard.fleet.plugins.plugin_utils.gating import GateAction


class ActionModule(GateAction):
    """Adapter of metalyard.runs.gating.judge."""

    operation = "gate_judge"
    argument_spec = {"variable": {"type": "str", "required": True}}

    def outcomes(self, gating, plan, run, hosts, arguments, task_vars):
        """Take each host's evidence from its registered variable; none is unknown, never healthy."""
        documents = {}
        for host in hosts:
            registered = task_vars["hostvars"][host].get(arguments["variable"]) or {}
            documents[host] = registered.get("document")
        return gating.judge(plan, run, documents, check=self._task.check_mode)
