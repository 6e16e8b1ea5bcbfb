from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FromAgent(_message.Message):
    __slots__ = ("hello", "batch", "check")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    batch: Batch
    check: int
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., batch: _Optional[_Union[Batch, _Mapping]] = ..., check: _Optional[int] = ...) -> None: ...

class FromService(_message.Message):
    __slots__ = ("resume", "ack", "policy", "acks", "check")
    RESUME_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    resume: Resume
    ack: Ack
    policy: Policy
    acks: Acks
    check: int
    def __init__(self, resume: _Optional[_Union[Resume, _Mapping]] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ..., policy: _Optional[_Union[Policy, _Mapping]] = ..., acks: _Optional[_Union[Acks, _Mapping]] = ..., check: _Optional[int] = ...) -> None: ...

class Source(_message.Message):
    __slots__ = ("replica", "boot")
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    BOOT_FIELD_NUMBER: _ClassVar[int]
    replica: str
    boot: str
    def __init__(self, replica: _Optional[str] = ..., boot: _Optional[str] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("agent_version", "schema_version", "sources", "policy", "takes_acks")
    AGENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    TAKES_ACKS_FIELD_NUMBER: _ClassVar[int]
    agent_version: str
    schema_version: int
    sources: _containers.RepeatedCompositeFieldContainer[Source]
    policy: int
    takes_acks: bool
    def __init__(self, agent_version: _Optional[str] = ..., schema_version: _Optional[int] = ..., sources: _Optional[_Iterable[_Union[Source, _Mapping]]] = ..., policy: _Optional[int] = ..., takes_acks: _Optional[bool] = ...) -> None: ...

class Position(_message.Message):
    __slots__ = ("source", "number", "next_seq")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    NEXT_SEQ_FIELD_NUMBER: _ClassVar[int]
    source: Source
    number: int
    next_seq: int
    def __init__(self, source: _Optional[_Union[Source, _Mapping]] = ..., number: _Optional[int] = ..., next_seq: _Optional[int] = ...) -> None: ...

class Resume(_message.Message):
    __slots__ = ("positions",)
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    positions: _containers.RepeatedCompositeFieldContainer[Position]
    def __init__(self, positions: _Optional[_Iterable[_Union[Position, _Mapping]]] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("source", "number", "first_seq", "next_seq", "tables")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQ_FIELD_NUMBER: _ClassVar[int]
    NEXT_SEQ_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    source: Source
    number: int
    first_seq: int
    next_seq: int
    tables: _containers.RepeatedCompositeFieldContainer[Table]
    def __init__(self, source: _Optional[_Union[Source, _Mapping]] = ..., number: _Optional[int] = ..., first_seq: _Optional[int] = ..., next_seq: _Optional[int] = ..., tables: _Optional[_Iterable[_Union[Table, _Mapping]]] = ...) -> None: ...

class Table(_message.Message):
    __slots__ = ("name", "arrow")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARROW_FIELD_NUMBER: _ClassVar[int]
    name: str
    arrow: bytes
    def __init__(self, name: _Optional[str] = ..., arrow: _Optional[bytes] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("source", "number", "refused_rows")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    REFUSED_ROWS_FIELD_NUMBER: _ClassVar[int]
    source: Source
    number: int
    refused_rows: int
    def __init__(self, source: _Optional[_Union[Source, _Mapping]] = ..., number: _Optional[int] = ..., refused_rows: _Optional[int] = ...) -> None: ...

class Acks(_message.Message):
    __slots__ = ("acks",)
    ACKS_FIELD_NUMBER: _ClassVar[int]
    acks: _containers.RepeatedCompositeFieldContainer[Ack]
    def __init__(self, acks: _Optional[_Iterable[_Union[Ack, _Mapping]]] = ...) -> None: ...

class Policy(_message.Message):
    __slots__ = ("number", "json", "note")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    number: int
    json: str
    note: str
    def __init__(self, number: _Optional[int] = ..., json: _Optional[str] = ..., note: _Optional[str] = ...) -> None: ...

class Applied(_message.Message):
    __slots__ = ("number",)
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    def __init__(self, number: _Optional[int] = ...) -> None: ...

class Replay(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: str
    def __init__(self, json: _Optional[str] = ...) -> None: ...

class Kept(_message.Message):
    __slots__ = ("verdicts",)
    VERDICTS_FIELD_NUMBER: _ClassVar[int]
    verdicts: int
    def __init__(self, verdicts: _Optional[int] = ...) -> None: ...
