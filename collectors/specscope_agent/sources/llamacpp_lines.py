"""The lines of a llama.cpp server's log, each pattern once: for the sidecar and for `analyze`.

Written by tools/server and common/speculative.cpp; the log has no version.
"""

from __future__ import annotations

import re

_INTEGER = r"(\d{1,15})"
_REAL = r"(\d{1,15}(?:\.\d{1,15})?)"
# Bounded: damage may leave thousands of digits in a row.

CLOCK = re.compile(r"\b(\d+(?:\.\d\d)+\.\d{3}\.\d{3})\b")
"""Time since the server's start: minutes, seconds, milliseconds and microseconds."""
TASK = re.compile(r"id\s+\d+ \| task\s+(-?\d+) \|")
TIMING = re.compile(rf"eval time\s*=\s*{_REAL} ms /\s*{_INTEGER} (?:tokens|runs)")
ACCEPTANCE = re.compile(rf"\(\s*{_INTEGER} accepted /\s*{_INTEGER} generated\)")
ROUND = re.compile(rf"accepted\s+{_INTEGER}/\s*{_INTEGER} draft tokens(?!, new)")
# At -lv 5 each of these is followed by another with `, new n_tokens`.

# Of builds that stamp their lines. Matched from the start of a line, so that no text of a client
# within one can pass for a line of the server.
STAMPED = re.compile(r"(\d{1,9})\.(\d\d)\.(\d{3})\.(\d{3}) [A-Z] (.*)")
SLOT = re.compile(r"slot\s+([\w()]+): id\s+\d{1,9} \| task (\d{1,15}) \| (.*)")
PROMPT = re.compile(rf"new prompt, .*\btask\.n_tokens = {_INTEGER}$")
CACHED = re.compile(rf"cached n_tokens = {_INTEGER},")
STOPPED = re.compile(r"stopped by (\w+)")
CANCELLED = re.compile(rf"srv\s+stop: cancel task, id_task = {_INTEGER}$")
VERBOSITY = re.compile(rf"cmn\s+common_param: common_params_print_info: verbosity = {_INTEGER}\b")
BUILD = re.compile(r"cmn\s+common_param: common_params_print_info: build (.+) with ")
MODEL = re.compile(r"srv\s+load_model: loading model '(.+)'$")
DRAFT_MODEL = re.compile(r"common_speculative_init_result: loading draft model '(.+)'$")
DRAFTER = re.compile(r"spec common_specu: adding speculative implementation '([\w.+-]+)'$")
LONGEST = re.compile(rf"spec common_specu: - .*\b(?:n_max|size_m)={_INTEGER}\b")
SLOTS = re.compile(rf"srv\s+load_model: initializing, n_slots = {_INTEGER},")
SAMPLER = re.compile(r"\ttop_k = .*\btop_p = ([\d.]+),.*\btemp = ([\d.]+)$")
STARTS, ENDS = "llama_server: initializing", "cleaning up before exit"
