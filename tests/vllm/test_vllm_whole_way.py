"""From vLLM's server to a verdict: hook, sidecar, service, store, blocks, report, as processes."""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from counters_traffic import BUNDLED
from vllm_server import answers, complete, server

from specscope.demo.processes import Processes, free_port

PAIRS, TOKENS = 24, 64  # what the models write repeats itself in the end
NGRAM = {
    "method": "ngram",
    "num_speculative_tokens": 4,
    "prompt_lookup_max": 3,
    "prompt_lookup_min": 2,
}
RULES = {"rules": [{"class": "python", "request_id": "^cmpl-python-"}], "default": "other"}
COMMAND = [sys.executable, "-m", "specscope"]


def environment(tmp_path, ingest):
    """Of the service, the sidecar and the commands; of nothing else of ours that is set here."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPECSCOPE_")}
    return kept | {
        "SPECSCOPE_RINGS": str(tmp_path / "rings"),
        "SPECSCOPE_SPOOL": str(tmp_path / "spool"),
        "SPECSCOPE_SERVICE": f"127.0.0.1:{ingest}",
        "SPECSCOPE_APPLY_TOKEN": "secret",
    }


def start_watching(processes, tmp_path):
    """A service and a sidecar; where to read, and the environment of the commands."""
    (tmp_path / "rings").mkdir()
    http, ingest = f"127.0.0.1:{free_port()}", free_port()
    environ = environment(tmp_path, ingest)
    serve = [*COMMAND, "serve", "--store", f"chdb://{tmp_path / 'store'}"]
    serve += ["--listen", f"127.0.0.1:{ingest}", "--http", http]
    processes.start("serve", serve, environ)
    until(lambda: answers(f"http://{http}"), processes)
    processes.start("agent", [*COMMAND, "agent"], environ)
    return f"http://{http}", environ


def until(done, processes, seconds=600):
    """Wait for what must come; the answer that was not false."""
    end = time.monotonic() + seconds
    while not (answer := done()):
        processes.check()
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.5)
    return answer


def send(address, prompts, number):
    """A request; how many tokens came back."""
    body = {"prompt": prompts[number % len(prompts)], "max_tokens": TOKENS}
    body |= {"temperature": 0.0, "ignore_eos": True}
    return complete(address, f"python-{number}", **body)


def pace(address, prompts):
    """Seconds between requests at which this machine keeps up, whatever else it does now."""
    began = time.monotonic()
    for number in range(4):
        send(address, prompts, number)
    return 2.0 * (time.monotonic() - began) / 4


def offer(address, prompts, every_s, running):
    """Requests at a fixed rate, whether or not those before have ended, while `running` says."""
    with ThreadPoolExecutor(32) as clients:
        sent = []
        while running():
            sent.append(clients.submit(send, address, prompts, len(sent)))
            time.sleep(every_s)
        return [future.result() for future in sent]


def report(store, environ, out):
    """The verdicts that a report gives now."""
    command = [*COMMAND, "report", "--store", store, "--since", "1h", "--out", str(out)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads((out / "report.json").read_text())


def test_blocks_on_a_vllm_server_end_in_a_verdict(vllm_python, pair, tmp_path):
    lines = map(json.loads, (BUNDLED / "prompts.jsonl").read_text().splitlines())
    prompts = [line["text"] for line in lines if line["label"] == "python"]
    (tmp_path / "rules.json").write_text(json.dumps(RULES))
    settings = {"SPECSCOPE_REQUEST_K": "on", "SPECSCOPE_CLASSES": str(tmp_path / "rules.json")}
    rings, log = tmp_path / "rings", tmp_path / "vllm.log"

    with Processes(tmp_path) as processes:
        store, environ = start_watching(processes, tmp_path)
        with server(
            vllm_python,
            pair / "target",
            NGRAM,
            rings,
            log,
            settings=settings,
            # With vLLM's default of 0 s its core is killed before it can end the ring.
            arguments=("--dtype", "float32", "--shutdown-timeout", "30"),
        ) as address:
            every_s = pace(address, prompts)
            block_s = 3.6 * every_s
            minutes = (PAIRS + 4) * 2 * block_s / 60
            window = ["gate", "calibrate", "--store", store, "--k", "0,4", "--default-k", "4"]
            window += ["--minutes", f"{minutes:.2f}", "--block-s", f"{block_s:.1f}", "--approve"]
            window += ["--whole-window"]
            gate = processes.start("gate", [*COMMAND, *window], environ, finite=True)
            usage = offer(address, prompts, every_s, lambda: gate.poll() is None)
            processes.check()
        found = until(lambda: enough(report(store, environ, tmp_path / "report")), processes)

    assert set(usage) == {TOKENS}
    segment = max(found["segments"], key=lambda one: one["arms"][-1]["pairs"])
    assert (segment["label"], segment["grade"]) == ("python", "measured")
    arms = {arm["arm"]: arm for arm in segment["arms"]}
    assert arms["k0"]["tokens_per_round"] == 1.0
    assert arms["k0"]["ms_per_token"]["draft"] < 0.02 * sum(arms["k0"]["ms_per_token"].values())
    assert arms["k4"]["tokens_per_round"] > 1.15
    # How sure it is depends on the machine's other work; which way it points does not.
    assert segment["action"] in ("keep", "set_k", "no_difference", "inconclusive")
    assert segment["k"] in (4, None)
    assert arms["k4"]["high"] > 1.0
    assert found["accounting"]["lost"] == 0
    assert found["accounting"]["stored"] > 1000
    assert found["outputs_differing"] == 0 < found["outputs_compared"]


def enough(found):
    """The report, once the last of its blocks are rolled up."""
    arms = [arm for segment in found["segments"] for arm in segment["arms"]]
    return found if any(arm["pairs"] >= PAIRS for arm in arms) else None
