"""Writes of an operator through the service: the next policy, or a replay's verdicts."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import grpc

from specscope.errors import InputError, NumberTaken, StoreError
from specscope.service.access import APPLY, Access
from specscope.service.calls import Refused, granted
from specscope.service.policies import Newest, proposed
from specscope.service.writer import Writer
from specscope_hook.errors import PolicyError

log = logging.getLogger(__name__)

NOT_TAKEN = (
    "this service accepts no policies: start it with SPECSCOPE_APPLY_TOKEN, or with a token of the "
    "right apply in SPECSCOPE_TOKENS"
)


async def applied(policy: Any, context: Any, writer: Writer, access: Access) -> Newest:
    """Store the policy of a call and return it. Raises Refused with a sentence."""
    if not access.takes_policies:
        raise Refused(grpc.StatusCode.FAILED_PRECONDITION, NOT_TAKEN)
    grant = granted(access, APPLY, context)
    try:
        add = proposed(policy.number, policy.json, policy.note, time.time_ns())
        # A caller that has given up by the time of its turn is not served.
        newest = await asyncio.wrap_future(writer.ask(add))
    except PolicyError as error:
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from error
    except NumberTaken as error:
        raise Refused(grpc.StatusCode.ALREADY_EXISTS, str(error)) from error
    except StoreError as error:
        raise Refused(grpc.StatusCode.INTERNAL, str(error)) from error
    note = " ".join(policy.note.split())[:200] or "no note"
    log.info("policy %d is in force, by %s: %s", newest.number, grant.name, note)
    return newest


async def kept(replay: Any, context: Any, writer: Writer, access: Access) -> int:
    """Store the verdicts of a call's replay and return their number. Raises Refused with a
    sentence."""
    if not access.takes_policies:
        raise Refused(grpc.StatusCode.FAILED_PRECONDITION, NOT_TAKEN)
    grant = granted(access, APPLY, context)
    try:
        # numpy and scipy take a second to load; a service without reports lacks them.
        from specscope.replay.result import parse
        from specscope.replay.stored import verdict_rows

        rows = await asyncio.to_thread(lambda: verdict_rows(parse(replay.json, "the result")))
        await asyncio.wrap_future(writer.ask(lambda store: store.add("assessment", rows)))
    except ImportError as error:
        text = f"the service was installed without {error.name}"
        raise Refused(grpc.StatusCode.UNIMPLEMENTED, text) from error
    except InputError as error:
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from error
    except StoreError as error:
        raise Refused(grpc.StatusCode.INTERNAL, str(error)) from error
    log.info("%d verdicts of a replay are stored, by %s", len(rows), grant.name)
    return len(rows)
