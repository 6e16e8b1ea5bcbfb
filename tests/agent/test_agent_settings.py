"""The sidecar's settings: what means nothing is refused in one line that names it."""

import pytest

from specscope_agent.settings import AgentSettings
from specscope_hook.errors import SettingsError


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SPECSCOPE_METRICS_PORT", "65536"),
        ("SPECSCOPE_METRICS_PORT", "-1"),
        ("SPECSCOPE_SERVICE", ":7070"),
        ("SPECSCOPE_SERVICE", "host"),
        ("SPECSCOPE_SAMPLE", "2"),
        ("SPECSCOPE_SPOOL_BYTES", "1e9"),
    ],
)
def test_a_value_that_means_nothing_is_named(tmp_path, name, value):
    with pytest.raises(SettingsError, match=name):
        AgentSettings.from_env({"SPECSCOPE_RINGS": str(tmp_path), name: value})


def test_an_empty_value_is_no_value(tmp_path):
    environment = {"SPECSCOPE_RINGS": str(tmp_path), "SPECSCOPE_METRICS_PORT": "0"}

    settings = AgentSettings.from_env(environment | {"SPECSCOPE_SERVICE": ""})

    assert settings.metrics_port is None
    assert settings.service is None
