# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the Python package behind the collection, with a clear error where it is missing."""

from __future__ import annotations

import importlib

from ansible.errors import AnsibleError


def metalyard(module: str):
    """Import a module of the package; the error says how to install it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != "metalyard":
            raise
        raise AnsibleError(
            "The collection metalyard.fleet needs the Python package 'metalyard' in the environment of "
            "ansible-playbook: run 'pip install metalyard' there."
        ) from error
