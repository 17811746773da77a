"""The InfiniBand fabric: its topology as the tools print it, and what is wrong with it by the plan. Pure."""

from metalyard.fabric.compare import CableFinding, Fault, compare
from metalyard.fabric.topology import FabricError, Topology, parse_ibnetdiscover

__all__ = ["CableFinding", "FabricError", "Fault", "Topology", "compare", "parse_ibnetdiscover"]
