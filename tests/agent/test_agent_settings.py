"""The sidecar's settings: what means nothing is refused in one line that names it."""

import socket
import threading

import pytest

from specscope_agent.agent import run
from specscope_agent.errors import AgentError
from specscope_agent.rings import Rings
from specscope_agent.settings import AgentSettings
from specscope_hook.errors import SettingsError


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SPECSCOPE_METRICS_PORT", "65536"),
        ("SPECSCOPE_METRICS_PORT", "-1"),
        ("SPECSCOPE_SERVICE", ":7070"),
        ("SPECSCOPE_SERVICE", "host"),
        ("SPECSCOPE_SERVICE", "host:0"),
        ("SPECSCOPE_SERVICE", "host:65536"),
        ("SPECSCOPE_SERVICE", "http://host:7070"),
        ("SPECSCOPE_SAMPLE", "2"),
        ("SPECSCOPE_SPOOL_BYTES", "1e9"),
        ("SPECSCOPE_SPOOL_BYTES", "0"),
        ("SPECSCOPE_SOURCES", "server.log"),
        ("SPECSCOPE_SOURCES", "lama.cpp:/server.log"),
        ("SPECSCOPE_SOURCES", "a=llama.cpp:/1.log,a=llama.cpp:/2.log"),
        ("SPECSCOPE_SOURCES", "llama.cpp:/1.log,,"),
    ],
)
def test_a_value_that_means_nothing_is_named(tmp_path, name, value):
    with pytest.raises(SettingsError, match=name):
        AgentSettings.from_env({"SPECSCOPE_RINGS": str(tmp_path), name: value})


def test_sources_need_no_rings_and_name_their_replicas():
    text = "left=llama.cpp:/logs/a.log, llama.cpp:/logs/b.log"

    settings = AgentSettings.from_env({"SPECSCOPE_SOURCES": text, "SPECSCOPE_REPLICA": "own"})

    assert settings.rings is None
    assert [source.replica for source in settings.sources] == ["left", "own"]
    assert [source.where for source in settings.sources] == ["/logs/a.log", "/logs/b.log"]


def test_an_empty_value_is_no_value(tmp_path):
    environment = {"SPECSCOPE_RINGS": str(tmp_path), "SPECSCOPE_METRICS_PORT": "0"}

    settings = AgentSettings.from_env(environment | {"SPECSCOPE_SERVICE": ""})

    assert settings.metrics_port is None
    assert settings.service is None


def test_a_port_of_metrics_in_use_is_one_error_and_gives_the_spool_back(tmp_path):
    with socket.create_server(("", 0)) as taken:
        settings = AgentSettings(
            rings=tmp_path / "rings",
            spool=tmp_path / "spool",
            service="127.0.0.1:1",
            metrics_port=taken.getsockname()[1],
        )

        for _ in range(2):  # the first one left no lock
            with pytest.raises(AgentError, match=r"port \d+ for metrics"):
                run(settings, threading.Event())


def test_a_directory_that_is_not_there_is_said_once(tmp_path, caplog):
    rings = Rings(tmp_path / "late")

    rings.refresh()
    rings.refresh()

    assert caplog.text.count("no rings in") == 1
