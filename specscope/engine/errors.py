"""The errors that the engine raises on purpose, one class per cause."""


class EngineError(Exception):
    """Root of all errors that the engine raises on purpose."""


class UnsupportedModel(EngineError):
    """The checkpoint needs a feature that this engine does not support."""


class BadCheckpoint(EngineError):
    """Files are missing, damaged, or do not fit their own configuration."""


class IncompatiblePair(EngineError):
    """Target and draft do not share a vocabulary."""


class BadRequest(EngineError):
    """A request that can never run: empty, too long, unknown setting, identifier in use."""

    def __init__(self, message: str, field: str | None = None) -> None:
        """field: the name of what is wrong with it, where it is one thing."""
        super().__init__(message)
        self.field = field


class BadGate(EngineError):
    """A gate answered with a draft length outside 0..k_max, or with too few of them."""


class NoCorpus(EngineError):
    """The training text is not on this machine."""


class BadSetting(EngineError):
    """An engine or its command has invalid settings."""
