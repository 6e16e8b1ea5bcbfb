"""The least that can stand for SGLang's registry; the real one takes its place where it is at hand.

It goes around methods when told to, each target once, and a target that it cannot apply is
passed with a line in the log.
"""

import functools
import logging
import pkgutil
from enum import Enum
from typing import ClassVar


class HookType(Enum):
    AROUND = "around"


class HookRegistry:
    waiting: ClassVar[dict] = {}
    applied: ClassVar[set] = set()

    @classmethod
    def register(cls, target, hook, hook_type):
        assert hook_type is HookType.AROUND
        cls.waiting.setdefault(target, []).append(hook)

    @classmethod
    def apply_hooks(cls):
        for target, hooks in cls.waiting.items():
            if target in cls.applied:
                continue
            try:
                path, name = target.rsplit(".", 1)
                owner = pkgutil.resolve_name(path)
                for hook in hooks:
                    setattr(owner, name, _around(getattr(owner, name), hook))
                cls.applied.add(target)
            except Exception:
                logging.getLogger(__name__).exception("cannot hook %s", target)


def _around(original, hook):
    @functools.wraps(original)
    def wrapped(*args, **kwargs):
        return hook(original, *args, **kwargs)

    return wrapped
