"""MAAS: a thin client of the region's API, and the operations that provision nodes and say which are in service."""
