"""Where findings are pushed, and how often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from sdfstream.errors import ConfigError

MOST_URL: Final = 2_000


@dataclass(frozen=True, slots=True)
class AlertsConfig:
    """An Alertmanager, and the addresses that its alerts lead to. Off by default."""

    alertmanager: str = ""
    """``http://HOST:9093``, with its prefix where it has one, and ``user:password@`` for basic authentication; empty:
    nothing is pushed."""
    bearer_file: str = ""
    """File whose first line is a bearer token; it is read at every push, so that it may change."""
    page_url: str = ""
    """Where people reach the page, such as ``https://monitor.example``: alerts link there. Empty: they do not."""
    runbooks_url: str = ""
    """Where ``docs/`` can be read; empty: an alert names the page within it."""
    look_s: float = 1.0
    """How often open findings are looked at. One that opens and resolves in between is not pushed."""
    repeat_s: float = 60.0
    """How often an alert that goes on is pushed again."""
    expire_s: float = 300.0
    """How long after its last push an alert ends by itself: longer, and a dead sdfstream's alerts stay; shorter than
    some repeats, and a slow network resolves what goes on."""
    timeout_s: float = 5.0
    """Longest wait for an answer."""

    def check(self) -> None:
        """Raise ConfigError where it cannot work."""
        if self.bearer_file and "@" in self.alertmanager:
            raise ConfigError("alerts.bearer_file and a user in alerts.alertmanager are two ways to say who pushes")
        for name in ("alertmanager", "page_url", "runbooks_url"):
            _check_url(name, getattr(self, name))
        if not 0.1 <= self.look_s <= 60.0:
            raise ConfigError("alerts.look_s must be from 0.1 to 60")
        if not 0.1 <= self.timeout_s <= 60.0:
            raise ConfigError("alerts.timeout_s must be from 0.1 to 60")
        if not 1.0 <= self.repeat_s <= 3600.0:
            raise ConfigError("alerts.repeat_s must be from 1 to 3600")
        if self.expire_s < 3 * self.repeat_s:
            raise ConfigError("alerts.expire_s must be at least three times alerts.repeat_s: one push may be lost")


def _check_url(name: str, url: str) -> None:
    if not url:
        return
    try:
        split = urlsplit(url)
        sound = split.scheme in ("http", "https") and bool(split.hostname) and not split.query and not split.fragment
        sound = (
            sound
            and split.port != 0
            and len(url) <= MOST_URL
            and url.isascii()
            and url.isprintable()
            and " " not in url
        )
    except ValueError:
        sound = False
    if not sound:
        raise ConfigError(f"alerts.{name} must be http://HOST:PORT or https://HOST:PORT, perhaps with a path")
