"""Journeys on the virtual rack."""
