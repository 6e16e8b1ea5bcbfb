"""The command as a user meets it."""

import gzip
import json
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from specscope import cli
from specscope.readers.codes import CODES

ROOT = Path(__file__).parents[2]
DATA = Path(__file__).parents[1] / "data" / "readers"
NGRAM = DATA / "cases/vllm-19254-ngram-v1log/vllm.log"
INPUTS = sorted((DATA / "cases").iterdir()) + sorted((DATA / "fixtures").iterdir())


def run(capsys, *arguments):
    status = cli.main(["analyze", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.mark.parametrize("path", INPUTS, ids=lambda p: p.name)
def test_the_page_leads_with_an_answer_and_fits_80_columns_in_plain_text(path, capsys):
    status, out, err = run(capsys, path)

    first = out.splitlines()[0].split(" ")[0].rstrip(":")
    assert status in (0, 3)
    assert err == ""
    assert first in {"KEEP", "CHANGE", "DISABLE", "ROUTE", "NO", "NOT", "INCONCLUSIVE", "FAULT"}
    assert max(len(line) for line in out.splitlines()) <= 80
    assert "\x1b" not in out


@pytest.mark.parametrize("path", INPUTS, ids=lambda p: p.name)
def test_the_json_follows_its_schema(path, capsys):
    status, out, _ = run(capsys, path, "--json")

    found = json.loads(out)
    assert status in (0, 3)
    assert found["schema"] == "specscope.analysis/1"
    assert list(found) == [
        "schema",
        "inputs",
        "windows",
        "totals",
        "comparisons",
        "time",
        "devices",
        "verdicts",
        "findings",
    ]
    actions = {
        "keep",
        "set_k",
        "disable",
        "route",
        "no_difference",
        "collect_baseline",
        "inconclusive",
        "not_comparable",
        "engine_fault",
        "no_data",
    }
    dimensions = {
        "label",
        "context",
        "batch",
        "concurrency",
        "output_tokens",
        "tp",
        "engine",
        "version",
    }
    assert found["verdicts"]
    for verdict in found["verdicts"]:
        assert verdict["action"] in actions
        assert set(verdict["class"]) <= dimensions
        assert verdict["grade"] in {"measured", "replayed", "modelled", None}
    for finding in found["findings"]:
        assert finding["code"] in CODES
        assert finding["severity"] == CODES[finding["code"]].severity
    for window in found["windows"]:
        for name in ("k", "drafts", "proposed", "accepted", "emitted", "running", "waiting"):
            assert window[name] is None or isinstance(window[name], int)


def test_every_code_is_listed_with_its_remedy(capsys):
    status, out, _ = run(capsys, "--codes")

    assert status in (0, 3)
    assert all(code in out for code in CODES)
    assert out.count("Remedy:") == len(CODES)
    assert max(len(line) for line in out.splitlines()) <= 80


@pytest.mark.parametrize(
    "content", [b"", b"hello\nworld\n", bytes(range(256)) * 64, b"{}", b"a,b\n1,2\n"]
)
def test_a_file_that_holds_nothing_known_is_one_line_and_exit_code_1(content, tmp_path, capsys):
    path = tmp_path / "x"
    path.write_bytes(content)

    status, out, err = run(capsys, path)

    assert (status, out) == (1, "")
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "nearer", "other"),
    [
        (b"slot 3: prompt eval, 20 ms per decoded token, draft on\n", "llama.cpp server", None),
        (b"# HELP a_b x\n# TYPE a_b histogram\na_b_sum 3\n", "Prometheus text", None),
        (b'{"mean_ttft": 3, "duration": 2, "completed": 7}', "benchmark result", "JSON"),
        (b'{"events": [{"ph": "X", "ts": 1, "dur": 2, "pid": 1}]}', "Kineto trace", "JSON"),
        (b"timestamp,temperature,clocks\n1,2,3\n", "nvidia-smi CSV", "table"),
        (bytes(64), None, None),
        (b"", None, None),
    ],
)
def test_an_unknown_file_is_told_the_two_nearest_formats(content, nearer, other, tmp_path, capsys):
    (tmp_path / "x").write_bytes(content)

    status, _, err = run(capsys, tmp_path / "x")
    _, named, formats = err.partition("the nearest formats are ")

    assert status == 1
    assert bool(named) is (nearer is not None)
    assert formats.startswith(nearer or "")
    assert not named or formats.count(" and ") == 1
    assert other is None or other in formats.partition(" and ")[2]


def test_a_missing_file_and_a_missing_argument_are_one_line_each(tmp_path, capsys):
    for arguments in ([tmp_path / "absent"], []):
        status, out, err = run(capsys, *arguments)

        assert status in (1, 2)
        assert out == ""
        assert len(err.strip().splitlines()) == 1


def test_an_unreadable_file_does_not_hide_the_readable_ones(tmp_path, capsys):
    shutil.copy(NGRAM, tmp_path / "a.log")
    (tmp_path / "broken.gz").write_bytes(b"\x1f\x8b" + b"nonsense" * 10)

    status, out, _ = run(capsys, tmp_path, "--json")

    assert status in (0, 3)
    assert json.loads(out)["totals"]["drafts"] == 3526


ROWS = {
    "keep": "none,0,8,100\neagle,3,8,130",
    "set_k": "none,0,8,100\neagle,3,8,130\neagle,7,8,80",
    "disable": "none,0,8,100\neagle,3,8,70",
    "inconclusive": "none,0,8,100\neagle,3,8,101",
    "not_comparable": "vLLM none,0,8,100\nSGLang eagle,3,8,130",
    "collect_baseline": "eagle,3,8,100\neagle,7,8,90",
    "no_data": "none,0,8,100",
}
SETTLED = {"keep", "set_k", "disable"}


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["page", "json"])
@pytest.mark.parametrize("action", ROWS)
def test_an_answer_that_decides_ends_with_0_and_one_that_does_not_with_3(
    action, form, tmp_path, capsys
):
    (tmp_path / "b.csv").write_text(f"arm,k,concurrency,tok_s\n{ROWS[action]}\n")

    status, out, err = run(capsys, tmp_path, *form)

    assert status == (0 if action in SETTLED else 3)
    assert out
    assert err == ""
    _, out, _ = run(capsys, tmp_path, "--json")
    assert {verdict["action"] for verdict in json.loads(out)["verdicts"]} == {action}


def test_one_decision_among_undecided_classes_ends_with_0(tmp_path, capsys):
    rows = ["none,0,8,100", "eagle,3,8,130", "none,0,64,100", "eagle,3,64,101"]
    (tmp_path / "b.csv").write_text("\n".join(["arm,k,concurrency,tok_s", *rows]) + "\n")

    assert run(capsys, tmp_path)[0] == 0


def test_gzip_and_its_truncated_kind_are_read_as_far_as_they_go(tmp_path, capsys):
    packed = gzip.compress((NGRAM.read_bytes() + b"\n") * 400)
    (tmp_path / "whole.log.gz").write_bytes(packed)
    (tmp_path / "cut.log.gz").write_bytes(packed[: len(packed) // 2])

    _, whole, _ = run(capsys, tmp_path / "whole.log.gz", "--json")
    _, cut, _ = run(capsys, tmp_path / "cut.log.gz", "--json")

    assert json.loads(whole)["totals"]["proposed"] == 400 * 10578
    assert 0 < json.loads(cut)["totals"]["proposed"] < 400 * 10578


class Endpoint(BaseHTTPRequestHandler):
    """Counters that rise by one round of three accepted tokens per scrape."""

    scrapes = 0

    def do_GET(self):
        type(self).scrapes += 1
        n = type(self).scrapes
        body = (
            f'vllm:spec_decode_num_drafts_total{{engine="0"}} {10 * n}\n'
            f'vllm:spec_decode_num_draft_tokens_total{{engine="0"}} {40 * n}\n'
            f'vllm:spec_decode_num_accepted_tokens_total{{engine="0"}} {30 * n}\n'
            f'vllm:generation_tokens_total{{engine="0"}} {40 * n}\n'
        ).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Quiet."""


class Flaky(Endpoint):
    """Fails every other time after the first."""

    asked = 0

    def do_GET(self):
        type(self).asked += 1
        if type(self).asked % 2 == 0:
            self.send_error(503)
        else:
            super().do_GET()


class Other(BaseHTTPRequestHandler):
    """Metrics of something else."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"go_goroutines 7\n")

    def log_message(self, *_):
        """Quiet."""


@pytest.fixture
def serve():
    servers = []

    def start(handler):
        server = HTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}/metrics"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_live_endpoint_is_polled_and_its_difference_taken(serve, capsys):
    Endpoint.scrapes = 0

    status, out, _ = run(capsys, serve(Endpoint), "--seconds", "0.4", "--every", "0.1", "--json")

    totals = json.loads(out)["totals"]
    assert status in (0, 3)
    assert (totals["drafts"], totals["accepted"], totals["mean_length"]) == (40, 120, 4.0)
    assert totals["seconds"] >= 0.3
    assert totals["throughput_tok_s"] > 0


class AtMetrics(Endpoint):
    """Nothing at the base address, metrics at their own."""

    def do_GET(self):
        if self.path != "/metrics":
            self.send_error(404)
        else:
            super().do_GET()


def test_a_base_address_is_tried_with_its_metrics(serve, capsys):
    AtMetrics.scrapes = 0
    base = serve(AtMetrics).removesuffix("/metrics")

    status, out, _ = run(capsys, base, "--seconds", "0.2", "--every", "0.1", "--json")

    assert status == 3
    assert json.loads(out)["totals"]["drafts"] == 20


def test_polls_that_fail_are_left_out_and_counted(serve, capsys):
    Flaky.scrapes = 0

    status, out, _ = run(capsys, serve(Flaky), "--seconds", "0.4", "--every", "0.1", "--json")

    found = json.loads(out)
    assert status in (0, 3)
    assert found["totals"]["drafts"] == 20
    assert any("2 polls failed" in f["text"] for f in found["findings"])


def test_metrics_of_something_else_are_one_line(serve, capsys):
    status, out, err = run(capsys, serve(Other), "--seconds", "0.1", "--every", "0.1")

    assert (status, out) == (1, "")
    assert "no metric of a known engine" in err


def test_an_endpoint_that_does_not_answer_is_one_line(capsys):
    status, out, err = run(capsys, "http://127.0.0.1:9/metrics", "--seconds", "1", "--every", "1")

    assert (status, out) == (1, "")
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "looks"),
    [
        (b"", "an empty file"),
        (b'{"a": 1}', "JSON without a known key"),
        (b"a,b,c\n1,2,3\n", "a table without a known arm or measure (a, b, c)"),
        (b"hello\n", "text without a known line"),
        (bytes(64), "a binary file"),
    ],
)
def test_what_cannot_be_read_is_said_to_look_like_something(content, looks, tmp_path, capsys):
    (tmp_path / "x").write_bytes(content)

    _, _, err = run(capsys, tmp_path / "x")

    assert looks in err


class Iterations(BaseHTTPRequestHandler):
    """TensorRT-LLM's queue: each read takes what is there."""

    number = 0

    def do_GET(self):
        type(self).number += 1
        item = {
            "iter": type(self).number,
            "iterLatencyMS": 10.0,
            "inflightBatchingStats": {"numGenRequests": 2, "numContextRequests": 0},
            "specDecodingStats": {
                "numDraftTokens": 6,
                "numAcceptedTokens": 4,
                "numRequestsWithDraftTokens": 2,
            },
        }
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps([item]).encode())

    def log_message(self, *_):
        """Quiet."""


def test_every_answer_of_a_draining_endpoint_is_kept(serve, capsys):
    Iterations.number = 0

    status, out, _ = run(capsys, serve(Iterations), "--seconds", "0.3", "--every", "0.1", "--json")

    found = json.loads(out)
    assert status in (0, 3)
    assert (found["totals"]["drafts"], found["totals"]["accepted"]) == (8, 16)
    assert "DRAINING_ENDPOINT" in {f["code"] for f in found["findings"]}


def test_the_codes_are_there_as_json_too(capsys):
    status, out, _ = run(capsys, "--codes", "--json")

    assert status in (0, 3)
    assert {entry["code"] for entry in json.loads(out)} == set(CODES)


def test_analyze_needs_the_standard_library_alone():
    program = (
        "import sys\n"
        "from specscope import cli\n"
        f"status = cli.main(['analyze', {str(DATA / 'cases')!r}])\n"
        "foreign = {m.partition('.')[0] for m in sys.modules} - set(sys.stdlib_module_names)\n"
        "own = {'specscope', 'specscope_hook', 'specscope_agent', '__main__'}\n"
        "print(*sorted(n for n in foreign - own if not n.startswith('_')))\n"
        "sys.exit(status)\n"
    )

    # -S keeps site-packages out: no rich, no numpy, no httpx.
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'collectors'}"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.splitlines()[-1] == ""


def test_a_mistyped_setting_is_warned_of_and_the_answer_is_given(tmp_path, monkeypatch, capsys):
    path = tmp_path / "table.md"
    path.write_text("| config | tok/s |\n|---|---|\n| no spec | 10.0 |\n| MTP | 20.0 |\n")
    monkeypatch.setenv("SPECSCOPE_RINGZ", "x")

    code = cli.main(["analyze", "--json", str(path)])

    written = capsys.readouterr()
    assert code == 0
    assert "SPECSCOPE_RINGZ" in written.err
    assert "SPECSCOPE_RINGS" in written.err  # the nearest name
    assert json.loads(written.out)["verdicts"][0]["action"] == "keep"
