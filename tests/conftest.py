"""How property tests run: the same examples every time in CI, new ones at each run elsewhere; no timed assertions."""

import os

from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("local", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "local")
