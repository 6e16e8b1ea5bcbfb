"""A vLLM server followed by its /metrics page; the real server's page is read in tests/vllm."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from specscope_agent.agent import Agent
from specscope_agent.loss import rows_table
from specscope_agent.settings import AgentSettings
from specscope_agent.sources.vllm_metrics import FIELDS, INTERVAL_NS, Failed, VllmMetrics, fetched
from specscope_hook.ring import Cursor

COUNTERS = {
    "vllm:spec_decode_num_drafts": "drafts",
    "vllm:spec_decode_num_draft_tokens": "proposed",
    "vllm:spec_decode_num_accepted_tokens": "accepted",
    "vllm:generation_tokens": "generated",
    "vllm:prompt_tokens": "prompts",
    "vllm:num_preemptions": "preempted",
}


class Server:
    """Counters of one start of a server with so many engines, as its page would show them."""

    def __init__(self, engines=1, speculates=True, started=1_000.25):
        self.engines, self.speculates, self.started = engines, speculates, started
        self.counts = [dict.fromkeys(COUNTERS.values(), 0) for _ in range(engines)]
        self.positions = [[0, 0, 0] for _ in range(engines)]
        self.gaps, self.running = 0, 0

    def serve(self, engine=0, **more):
        for name, value in more.items():
            self.counts[engine][name] += value
        for position in range(3):
            self.positions[engine][position] += more.get("accepted", 0) // 2 ** (position + 1)

    def page(self, _address=""):
        lines = []
        if self.started:
            lines += [
                "# TYPE process_start_time_seconds gauge",
                f"process_start_time_seconds {self.started}",
            ]
        for name, key in COUNTERS.items():
            if name.startswith("vllm:spec") and not self.speculates:
                continue
            lines += [f"# HELP {name} of a test", f"# TYPE {name} counter"]
            for engine, counts in enumerate(self.counts):
                labels = f'engine="{engine}",model_name="a \\"model\\", large"'
                lines.append(f"{name}_total{{{labels}}} {counts[key]}.0")
        if self.speculates:
            name = "vllm:spec_decode_num_accepted_tokens_per_pos"
            lines.append(f"# TYPE {name} counter")
            for engine, positions in enumerate(self.positions):
                for position, count in enumerate(positions):
                    labels = f'engine="{engine}",model_name="m",position="{position}"'
                    lines.append(f"{name}_total{{{labels}}} {count}.0")
        lines += [
            "# TYPE vllm:inter_token_latency_seconds histogram",
            f'vllm:inter_token_latency_seconds_bucket{{engine="0",le="+Inf"}} {self.gaps}.0',
            f'vllm:inter_token_latency_seconds_count{{engine="0",model_name="m"}} {self.gaps}.0',
            f'vllm:inter_token_latency_seconds_sum{{engine="0",model_name="m"}} {self.gaps}.5',
            "# TYPE vllm:num_requests_running gauge",
            f'vllm:num_requests_running{{engine="0",model_name="m"}} {self.running}.0',
        ]
        return "\n".join(lines) + "\n"


class Clock:
    now_ns = 1_700_000_000_000_000_000

    def __call__(self):
        return self.now_ns


def follow(server, clock, where="http://a/metrics"):
    return VllmMetrics(where, "r0", fetch=server.page, now_ns=clock)


def next_rows(source, clock):
    """Values and reasons of one interval later, by field."""
    clock.now_ns += INTERVAL_NS
    harvest = source.poll(lambda _: Cursor())
    source.kept()
    rows = harvest.rows.get("device", [])
    rows_table("device", rows)  # the stored schema takes them
    return {row["field"]: (row["value"], row["reason"]) for row in rows}, harvest


def test_rows_are_what_the_counters_rose_by_in_the_interval():
    server, clock = Server(), Clock()
    server.serve(drafts=100, proposed=300, accepted=50, generated=900)
    source = follow(server, clock)
    first, harvest = next_rows(source, clock)
    server.serve(drafts=10, proposed=30, accepted=8, generated=25, prompts=64)
    server.gaps, server.running = 17, 3

    rows, later = next_rows(source, clock)

    assert first == {}
    assert (harvest.boot["k_max"], harvest.boot["target"]) == (3, 'a "model", large, m')
    assert {name: value for name, (value, _) in rows.items()} == {
        "engine_drafts": 10,
        "engine_proposed": 30,
        "engine_accepted": 8,
        "engine_accepted_at_0": 4,
        "engine_accepted_at_1": 2,
        "engine_accepted_at_2": 1,
        "engine_generation_tokens": 25,
        "engine_prompt_tokens": 64,
        "engine_preemptions": 0,
        "engine_request_rounds": 17,
        "engine_running": 3,
        "engine_waiting": None,
    }
    assert rows["engine_waiting"][1] == "the page has no vllm:num_requests_waiting"
    assert {row["window_ms"] for row in later.rows["device"]} == {10_000}
    assert later.cursor.position > harvest.cursor.position


def test_a_server_that_does_not_speculate_has_unknown_counts_and_not_zeros():
    server, clock = Server(speculates=False), Clock()
    source = follow(server, clock)
    _, harvest = next_rows(source, clock)
    server.serve(generated=5)

    rows, _ = next_rows(source, clock)

    assert (harvest.boot["method"], harvest.boot["k_max"]) == ("none", 0)
    assert rows["engine_generation_tokens"] == (5, "")
    assert rows["engine_accepted"][0] is None
    assert "num_accepted_tokens_total" in rows["engine_accepted"][1]


@pytest.mark.parametrize("says_when", [True, False])
def test_after_a_restart_of_the_server_counts_begin_anew_under_another_boot(says_when):
    server, clock = Server(started=1000.0 * says_when), Clock()
    server.serve(generated=50)
    source = follow(server, clock)
    _, before = next_rows(source, clock)

    restarted = Server(started=2000.0 * says_when)
    restarted.serve(generated=20)
    source._fetch = restarted.page
    rows, after = next_rows(source, clock)
    restarted.serve(generated=7)
    later, _ = next_rows(source, clock)

    assert rows == {}
    assert after.source.boot != before.source.boot
    assert later["engine_generation_tokens"] == (7, "")


def test_a_restarted_sidecar_names_the_same_start_the_same():
    server, clock = Server(), Clock()
    _, before = next_rows(follow(server, clock), clock)
    _, after = next_rows(follow(server, clock), clock)

    assert before.source == after.source


def test_engines_of_a_server_are_added_up_or_followed_alone():
    server, clock = Server(engines=2), Clock()
    sources = [follow(server, clock, f"http://a/metrics{which}") for which in ("", "#1")]
    for source in sources:
        source.poll(lambda _: Cursor())
        source.kept()
    server.serve(engine=0, generated=5)
    server.serve(engine=1, generated=2)

    clock.now_ns += INTERVAL_NS
    together, alone = (source.poll(lambda _: Cursor()).rows["device"] for source in sources)

    def generated(rows):
        return [row["value"] for row in rows if row["field"] == "engine_generation_tokens"]

    assert (generated(together), generated(alone)) == ([7], [2])
    with pytest.raises(Failed, match="of engine 2"):
        follow(server, clock, "http://a/metrics#2").poll(lambda _: Cursor())


def test_nothing_is_asked_of_the_server_before_the_interval_is_over_and_a_harvest_stays():
    server, clock, asked = Server(), Clock(), []
    source = VllmMetrics(
        "http://a/metrics", "r0", fetch=lambda a: asked.append(a) or server.page(), now_ns=clock
    )
    first = source.poll(lambda _: Cursor())
    again = source.poll(lambda _: Cursor())
    source.kept()

    assert again is first
    assert source.poll(lambda _: Cursor()) is None
    assert len(asked) == 1


@pytest.mark.parametrize(
    "page",
    [
        "",
        "<html>no page</html>",
        "sglang:num_running_reqs 3\n",
        "vllm:generation_tokens_total{ 1\n",
    ],
)
def test_what_is_no_page_of_vllms_is_said_and_stores_nothing(page):
    source = VllmMetrics("http://a/metrics", "r0", fetch=lambda _: page)

    with pytest.raises(OSError, match="the page") as failure:
        source.poll(lambda _: Cursor())

    assert "\n" not in str(failure.value)
    assert source.missing


@pytest.mark.parametrize("address", ["/etc/passwd", "file:///etc/passwd", "http://[", "http://:x/"])
def test_only_a_web_address_is_read(address):
    with pytest.raises(OSError, match=r"\S"):
        fetched(address)


def test_the_sidecar_stores_a_boot_and_the_intervals_of_a_server_over_http(tmp_path, monkeypatch):
    monkeypatch.setattr("specscope_agent.sources.vllm_metrics.INTERVAL_NS", 0)
    server = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = server.page().encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        where = f"http://127.0.0.1:{http.server_port}/metrics"
        settings = AgentSettings.from_env(
            {"SPECSCOPE_SOURCES": f"r7=vllm.metrics:{where}", "SPECSCOPE_SPOOL": str(tmp_path)}
        )
        agent = Agent(settings)
        source = agent.keeper.sources[0]
        monkeypatch.setattr(source, "_now", iter(range(10**9, 10**12, 10**9)).__next__)
        kept = []
        monkeypatch.setattr(
            agent.keeper, "_keep", lambda h, keep=agent.keeper._keep: (kept.append(h), keep(h))
        )
        for tokens in (5, 6):
            server.serve(generated=tokens)
            harvest = source.poll(lambda _: Cursor())
            agent.keeper._keep(harvest)
            source.kept()
        http.shutdown()
        agent.close()

    assert [len(h.rows.get("device", ())) for h in kept] == [0, len(FIELDS) + 3]
    assert json.loads(kept[0].boot["configuration"])["k_max"] == 3
    assert {s.replica for s in agent.spool.sources} == {"r7"}
