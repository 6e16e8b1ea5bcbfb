"""Post a report to a webhook, in the form that Slack and compatible services accept."""

from __future__ import annotations

import time
from collections.abc import Callable
from urllib.parse import urlsplit

from specscope.errors import ServiceError, UsageError
from specscope.report.model import Report
from specscope.report.phrases.actions import change_said, kept_said, worth_said
from specscope.report.phrases.segments import deciding_arm, verdict

TRIES = 4
PAUSES_S = (1.0, 4.0, 15.0)  # between two tries; more if the other side names a longer one
LONGEST_PAUSE_S = 60.0
ANSWER_S = 20.0
MOST_SEGMENTS = 12  # a message is read on a phone
MOST_LETTERS = 3000  # what Slack shows of one text


def message(report: Report, link: str | None = None) -> dict[str, str]:
    """Compose the message: headline, actions and verdicts. link: address of the whole page."""
    lines = [f"*{_escaped(report.title)}*: {_escaped(report.headline)}"]
    for change in report.changes:
        worth = "; ".join(worth_said(change)[:2])
        lines.append(f"• {_escaped(change.segment)}: {_escaped(change_said(change))} ({worth})")
    if report.how:
        lines.append(f"`{_escaped(report.how.command)}`")
    for segment in report.segments[:MOST_SEGMENTS]:
        best = deciding_arm(segment)
        speedup = f", {best.speedup:.2f}x" if best and best.speedup else ""
        lines.append(f"{_escaped(segment.name)}: {_escaped(verdict(segment))}{speedup}")
    if len(report.segments) > MOST_SEGMENTS:
        lines.append(f"and {len(report.segments) - MOST_SEGMENTS} more kinds of traffic")
    if report.promises:
        lines.append(_escaped(kept_said(report)) + ".")
    lost = report.accounting.lost
    if lost:
        lines.append(f"{lost} of {report.accounting.recorded} records were lost.")
    text, end = "\n".join(lines), f"\n<{link}|the whole report>" if link else ""
    room = MOST_LETTERS - len(end)
    if len(text) > room:
        text = text[: text.rindex("\n", 0, room - 2)] + "\n…"
    return {"text": text + end}


def send(body: dict[str, str], url: str, *, sleep: Callable[[float], None] = time.sleep) -> None:
    """Post a message; retry while the host is unreachable or asks to retry later.

    Raises UsageError if the address is invalid, and ServiceError if the host refuses the message.
    The error names only the host, because the rest of a webhook's address is a secret.
    """
    import httpx

    host = webhook_host(url)
    said = ""
    for attempt in range(TRIES):
        pause_s = PAUSES_S[min(attempt, len(PAUSES_S) - 1)]
        try:
            answer = httpx.post(url, json=body, timeout=ANSWER_S, follow_redirects=False)
        except httpx.HTTPError as error:
            said = type(error).__name__ if not str(error) else str(error).replace(url, host)
        else:
            if answer.is_success:
                return
            said = f"it answered {answer.status_code}"
            if answer.status_code != 429 and answer.status_code < 500:
                break
            pause_s = max(pause_s, _asked_to_wait_s(answer.headers.get("retry-after")))
        if attempt + 1 < TRIES:
            sleep(min(pause_s, LONGEST_PAUSE_S))
    raise ServiceError(f"{host} refused the report: {said}")


def webhook_host(url: str) -> str:
    """The host of a webhook's address, which is no secret. Raises UsageError for an invalid
    address."""
    parts = urlsplit(url)
    try:
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        port = None
    if parts.scheme not in ("http", "https") or not parts.hostname or port is None:
        raise UsageError("a webhook's address is https://HOST/… or http://HOST/…")
    return f"{parts.scheme}://{parts.hostname}{port}"


def _asked_to_wait_s(header: str | None) -> float:
    return float(header) if header and header.isascii() and header.isdigit() else 0.0


def _escaped(text: str) -> str:
    """Escape text so that it mentions no channel or person and forms no link."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
