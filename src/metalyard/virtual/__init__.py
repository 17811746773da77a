"""The virtual rack: emulated BMCs and MAAS, node containers and a simulated fabric on one machine."""
