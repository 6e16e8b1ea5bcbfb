"""Settings: read, refused outside the serving process, forgiven inside it."""

import re
from pathlib import Path

import pytest

from specscope_hook.errors import SettingsError
from specscope_hook.settings import KNOWN, HookSettings, check, complaints, unknown


def test_the_hook_is_off_unless_it_is_told_where_its_rings_are():
    assert HookSettings.from_env({}).rings is None
    assert HookSettings.from_env({"SPECSCOPE_RINGS": "off"}).rings is None
    assert HookSettings.from_env({"SPECSCOPE_RINGS": "/rings"}).rings == Path("/rings")


def test_every_value_is_read():
    settings = HookSettings.from_env(
        {
            "SPECSCOPE_REPLICA": "r7",
            "SPECSCOPE_RING_BYTES": "4096",
            "SPECSCOPE_SALT": "s",
            "SPECSCOPE_CLASSES": "/rules.json",
            "SPECSCOPE_PRICE_PER_HOUR": "2.5",
            "SPECSCOPE_REQUEST_K": "on",
        }
    )

    assert settings == HookSettings(None, "r7", 4096, "s", Path("/rules.json"), 2.5, True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SPECSCOPE_RING_BYTES", "64M"),
        ("SPECSCOPE_RING_BYTES", "0"),
        ("SPECSCOPE_RING_BYTES", "-4"),
        ("SPECSCOPE_PRICE_PER_HOUR", "cheap"),
        ("SPECSCOPE_PRICE_PER_HOUR", "inf"),
        ("SPECSCOPE_REQUEST_K", "maybe"),
    ],
)
def test_a_value_that_means_nothing_is_named(name, value):
    with pytest.raises(SettingsError, match=name):
        HookSettings.from_env({name: value})


def test_an_unknown_name_is_refused_with_the_nearest_known_one():
    with pytest.raises(SettingsError, match="did you mean SPECSCOPE_RINGS"):
        check({"SPECSCOPE_RING": "/rings"})


def test_an_unknown_name_is_a_warning_inside_the_serving_process():
    lines = complaints({"SPECSCOPE_RING": "/rings", "SPECSCOPE_XYZZY": ""})

    assert lines == [
        "SPECSCOPE_RING is not a setting; did you mean SPECSCOPE_RINGS?",
        "SPECSCOPE_XYZZY is not a setting",
    ]


def test_known_names_other_programs_names_and_what_kubernetes_injects_are_fine():
    injected = [
        "SPECSCOPE_PORT",
        "SPECSCOPE_SERVICE_HOST",
        "SPECSCOPE_SERVICE_PORT",
        "SPECSCOPE_SERVICE_PORT_GRPC",
        "SPECSCOPE_INGEST_SERVICE_HOST",
        "SPECSCOPE_INGEST_SERVICE_PORT_HTTP",
        "SPECSCOPE_PORT_4317_TCP",
        "SPECSCOPE_PORT_4317_TCP_ADDR",
        "SPECSCOPE_INGEST_PORT",
        "SPECSCOPE_INGEST_PORT_4317_TCP_PROTO",
        "PATH",
    ]

    assert unknown(dict.fromkeys([*KNOWN, *injected], "x")) == {}


def test_the_page_of_settings_has_each_of_them_and_no_other():
    page = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()

    cells = re.findall(r"^\| (`SPECSCOPE_[^|]*)\|", page, re.MULTILINE)
    assert set(re.findall(r"SPECSCOPE_\w+", " ".join(cells))) == set(KNOWN)
