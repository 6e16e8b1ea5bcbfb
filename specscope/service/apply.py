"""An operator's new policy: who may, whether it can be followed, whether it is the next one."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from typing import Any

import grpc

from specscope.errors import NumberTaken, StoreError
from specscope.service.policies import Newest, proposed
from specscope.service.writer import Writer
from specscope_hook.errors import PolicyError

log = logging.getLogger(__name__)

NOT_TAKEN = "this service takes no policies; it does where it is started with SPECSCOPE_APPLY_TOKEN"
WRONG_TOKEN = "the token is not the one that this service was started with (SPECSCOPE_APPLY_TOKEN)"


async def applied(policy: Any, context: Any, writer: Writer, token: str) -> Newest:
    """The policy of a call, once the store has it; else the call is aborted with a sentence."""
    if not token:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, NOT_TAKEN)
    if not permitted(context.invocation_metadata(), token):
        log.warning("%s sent a policy with a wrong token", context.peer())
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, WRONG_TOKEN)
    try:
        add = proposed(policy.number, policy.json, policy.note, time.time_ns())
        # A caller that has given up by the time of its turn is not served.
        newest = await asyncio.wrap_future(writer.ask(add))
    except PolicyError as error:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
    except NumberTaken as error:
        await context.abort(grpc.StatusCode.ALREADY_EXISTS, str(error))
    except StoreError as error:
        await context.abort(grpc.StatusCode.INTERNAL, str(error))
    log.info("policy %d is in force: %s", newest.number, policy.note or "no note")
    return newest


def permitted(metadata: Any, token: str) -> bool:
    """Whether the call's metadata has the token; takes as long for a near miss as for a far one."""
    given = [value for key, value in metadata if key == "authorization"]
    wanted = f"Bearer {token}".encode()
    return len(given) == 1 and hmac.compare_digest(str(given[0]).encode(), wanted)
