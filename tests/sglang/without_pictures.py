"""SGLang imports torchvision for pictures, and there is none here: a module that has everything.

Also read as `sitecustomize`, so that the processes which SGLang starts have it from their start.
"""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from unittest.mock import MagicMock

PICTURES = ("", ".io", ".ops", ".transforms", ".transforms.functional", ".transforms.v2")


def pretend(name: str) -> None:
    """A module that has everything."""
    module = ModuleType(name)
    module.__version__ = "0"
    module.__spec__, module.__path__ = ModuleSpec(name, None, is_package=True), []
    module.__getattr__ = _anything
    sys.modules[name] = module


def _anything(name: str) -> MagicMock:
    if name.startswith("__"):
        raise AttributeError(name)
    return MagicMock()


def pretend_pictures() -> None:
    """Before SGLang is imported."""
    for part in (*PICTURES, ".transforms.v2.functional"):
        pretend("torchvision" + part)
