"""Tools of a virtual node: they print what the real ones print, from its hardware model. Python 3.8, no packages."""
