"""Metalyard: takes racks of bare-metal H100 nodes from power-on to in service, and keeps them there."""

from importlib.metadata import version

__version__ = version("metalyard")
