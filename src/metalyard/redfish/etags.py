"""ETags as BMCs really give them, and the order in which to try them as If-Match."""

from __future__ import annotations

import re

ANY = "*"


def ladder(etag: str | None) -> list[str | None]:
    """Values for If-Match, to be tried in turn as long as the answer is 412; None sends no If-Match.

    The strong form comes first (a weak one never matches by RFC 9110), then the weak one, then what was given
    where that is neither, then none. A missing or empty ETag starts with none; :data:`ANY` is for a BMC that insists
    on If-Match (428) and gives no ETag.
    """
    given = (etag or "").strip()
    opaque = _opaque(given)
    if not opaque:
        return [None, ANY]
    return list(dict.fromkeys([f'"{opaque}"', f'W/"{opaque}"', given, None, ANY]))


def _opaque(given: str) -> str:
    text = re.sub(r"^[Ww]/", "", given)
    return text.replace('\\"', '"').strip('"').strip()
