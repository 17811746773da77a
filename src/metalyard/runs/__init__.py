"""Runs: start a playbook, follow it, record it, resume it."""
