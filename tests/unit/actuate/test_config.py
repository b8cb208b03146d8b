"""Settings of the controller."""

from __future__ import annotations

import pytest

from sdfstream.actuate.config import ActuateConfig
from sdfstream.errors import ConfigError


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ({"steer_on": ("odd",)}, "steer_on"),
        ({"lease_s": 1}, "lease_s"),
        ({"kept_gain": 0.5}, "kept_gain"),
        ({"most_alternates": 0}, "most_alternates"),
        ({"selectable_ports": 1}, "selectable_ports"),
        ({"excess_us": 0}, "excess_us"),
        ({"throttle_headroom": 2}, "throttle_headroom"),
    ],
)
def test_a_wrong_setting_is_named(wrong: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigError, match=f"actuate.{key}"):
        ActuateConfig(**wrong)  # type: ignore[arg-type]
