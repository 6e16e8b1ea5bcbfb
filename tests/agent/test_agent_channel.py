"""How the sidecar knows its service: what it sends and follows, and over which channel."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from ports import own_port

from specscope_agent import telemetry_pb2 as wire
from specscope_agent.channel import Security, is_loopback, refusal
from specscope_agent.errors import AgentError
from specscope_agent.settings import AgentSettings
from specscope_agent.uplink import Uplink
from specscope_hook.errors import SettingsError


@pytest.mark.parametrize(
    "address", ["127.0.0.1:7070", "127.8.9.1:7070", "[::1]:7070", "localhost:7070"]
)
def test_an_address_of_this_machine(address):
    assert is_loopback(address)


@pytest.mark.parametrize(
    "address",
    ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "host:1", "127.0.0.1.example.org:1", "localhost.x:1",
     "127.1:1", "[::ffff:10.0.0.1]:1", ""],
)  # fmt: skip
def test_an_address_that_may_be_another_s(address):
    assert not is_loopback(address)


@pytest.mark.parametrize(
    ("address", "security", "followed"),
    [
        ("127.0.0.1:1", Security(), True),
        ("service:1", Security(), False),
        ("service:1", Security(certificate=Path("c"), key=Path("k")), False),
        ("service:1", Security(ca=Path("ca.pem")), True),
        ("service:1", Security(system_ca=True), True),
    ],
)
def test_a_policy_is_followed_only_from_a_service_that_is_known(
    address, security, followed, caplog
):
    taken = []
    uplink = Uplink(address, None, lambda *policy: taken.append(policy), security=security)

    for _ in range(3):
        uplink._take_policy(wire.Policy(number=4, json="{}"))

    assert taken == ([(4, "{}")] * 3 if followed else [])
    assert len(caplog.records) == (0 if followed else 1)


def environ(tmp_path, **more):
    return {"SPECSCOPE_RINGS": str(tmp_path), "SPECSCOPE_SERVICE": "service:7070", **more}


def test_a_token_never_crosses_a_network_in_the_clear(tmp_path):
    with pytest.raises(SettingsError):
        AgentSettings.from_env(environ(tmp_path, SPECSCOPE_TOKEN_FILE="/t"))

    for more in ({"SPECSCOPE_TLS_CA": "system"}, {"SPECSCOPE_SERVICE": "localhost:7070"}):
        settings = AgentSettings.from_env(environ(tmp_path, SPECSCOPE_TOKEN_FILE="/t", **more))
        assert settings.security.token == Path("/t")


def test_a_certificate_without_its_key_is_refused(tmp_path):
    with pytest.raises(SettingsError):
        AgentSettings.from_env(environ(tmp_path, SPECSCOPE_TLS_CERT="/c"))


def test_a_token_is_read_again_for_each_stream(tmp_path):
    file = tmp_path / "token"
    security = Security(token=file)

    for text in ("red\n", "blue"):
        file.write_text(text)
        assert security.metadata() == (("authorization", f"Bearer {text.strip()}"),)


@pytest.mark.parametrize("text", ["", "\n", "two words", "r\u00e9d", None])
def test_a_file_without_a_token_is_named(tmp_path, text):
    file = tmp_path / "token"
    if text is not None:
        file.write_text(text)

    with pytest.raises(AgentError, match=str(file)):
        Security(token=file).metadata()


def failed(security, address):
    """What a call to an address says of its failure."""
    with security.channel(address) as channel, pytest.raises(grpc.RpcError) as raised:
        channel.unary_unary("/specscope/None")(b"", timeout=10)
    return refusal(address, raised.value.code().name, raised.value.details())


def test_an_absent_service_is_said_in_one_line_with_a_remedy():
    free_port = own_port()
    nobody = failed(Security(), f"127.0.0.1:{free_port}")

    assert nobody == (
        f"the service at 127.0.0.1:{free_port} cannot be reached: nothing listens there; start the "
        "service, or correct the address"
    )
    assert failed(Security(), "no-such-host.invalid:1").endswith("no host has that name")


def test_a_service_without_tls_where_the_sidecar_expects_it():
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        assert failed(Security(system_ca=True), f"127.0.0.1:{port}").endswith(
            "it speaks no TLS; unset SPECSCOPE_TLS_CA"
        )
        assert "answers UNIMPLEMENTED: " in failed(Security(), f"127.0.0.1:{port}")
    finally:
        server.stop(None)


def test_an_unknown_failure_keeps_the_last_clause_of_its_text():
    details = "failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.1:1: Odd"

    assert refusal("a:1", "UNAVAILABLE", details) == "the service at a:1 cannot be reached: Odd"
