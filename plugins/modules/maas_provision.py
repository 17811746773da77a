# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of an action that runs on the controller: plugins/action/maas_provision.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: maas_provision
short_description: Takes every node of the play through MAAS
version_added: 0.1.0
author: The Metalyard developers (@metalyard)
description:
  - Enlists, commissions, tags and deploys from whatever status a machine is in, with cloud-init user data,
    asking MAAS once for all machines.
  - A machine is looked up by its boot MAC before and after it is created, so that a crash never makes it twice.
options: {}
attributes:
  check_mode:
    description: Reads only, and says what would change.
    support: full
  diff_mode:
    description: Returns the differences per host through M(metalyard.fleet.sweep_result).
    support: full
requirements:
  - The Python package C(metalyard) on the controller.
seealso:
  - module: metalyard.fleet.sweep_result
"""

EXAMPLES = r"""
- name: Sweep all hosts of the play
  metalyard.fleet.maas_provision:
  run_once: true

- name: Take the host's result
  metalyard.fleet.sweep_result:
    sweep: maas_provision
"""

RETURN = r"""
swept:
  description: How many hosts were swept.
  returned: always
  type: int
  sample: 511
trouble:
  description: How many of them failed or did not answer.
  returned: always
  type: int
  sample: 3
"""
