from n4n.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WatchRequest(_message.Message):
    __slots__ = ("hello", "ack", "nack")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    NACK_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    ack: Ack
    nack: Nack
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ..., nack: _Optional[_Union[Nack, _Mapping]] = ...) -> None: ...

class Held(_message.Message):
    __slots__ = ("collection", "version", "checksum")
    COLLECTION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    collection: _types_pb2.Collection
    version: int
    checksum: str
    def __init__(self, collection: _Optional[_Union[_types_pb2.Collection, str]] = ..., version: _Optional[int] = ..., checksum: _Optional[str] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("node", "role", "build", "held")
    NODE_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    BUILD_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    node: str
    role: str
    build: str
    held: _containers.RepeatedCompositeFieldContainer[Held]
    def __init__(self, node: _Optional[str] = ..., role: _Optional[str] = ..., build: _Optional[str] = ..., held: _Optional[_Iterable[_Union[Held, _Mapping]]] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("collection", "version", "checksum")
    COLLECTION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    collection: _types_pb2.Collection
    version: int
    checksum: str
    def __init__(self, collection: _Optional[_Union[_types_pb2.Collection, str]] = ..., version: _Optional[int] = ..., checksum: _Optional[str] = ...) -> None: ...

class Nack(_message.Message):
    __slots__ = ("collection", "version", "field", "reason")
    COLLECTION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    collection: _types_pb2.Collection
    version: int
    field: str
    reason: str
    def __init__(self, collection: _Optional[_Union[_types_pb2.Collection, str]] = ..., version: _Optional[int] = ..., field: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ("update", "heartbeat")
    UPDATE_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    update: Update
    heartbeat: Heartbeat
    def __init__(self, update: _Optional[_Union[Update, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ...) -> None: ...

class Update(_message.Message):
    __slots__ = ("collection", "version", "checksum", "base_version", "base_checksum", "upserts", "removed", "part", "parts", "committed_at_ms")
    COLLECTION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    BASE_VERSION_FIELD_NUMBER: _ClassVar[int]
    BASE_CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    UPSERTS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    collection: _types_pb2.Collection
    version: int
    checksum: str
    base_version: int
    base_checksum: str
    upserts: _containers.RepeatedCompositeFieldContainer[_types_pb2.Resource]
    removed: _containers.RepeatedCompositeFieldContainer[_types_pb2.ResourceName]
    part: int
    parts: int
    committed_at_ms: int
    def __init__(self, collection: _Optional[_Union[_types_pb2.Collection, str]] = ..., version: _Optional[int] = ..., checksum: _Optional[str] = ..., base_version: _Optional[int] = ..., base_checksum: _Optional[str] = ..., upserts: _Optional[_Iterable[_Union[_types_pb2.Resource, _Mapping]]] = ..., removed: _Optional[_Iterable[_Union[_types_pb2.ResourceName, _Mapping]]] = ..., part: _Optional[int] = ..., parts: _Optional[int] = ..., committed_at_ms: _Optional[int] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("heads", "sent_at_ms", "routers")
    HEADS_FIELD_NUMBER: _ClassVar[int]
    SENT_AT_MS_FIELD_NUMBER: _ClassVar[int]
    ROUTERS_FIELD_NUMBER: _ClassVar[int]
    heads: _containers.RepeatedCompositeFieldContainer[Held]
    sent_at_ms: int
    routers: int
    def __init__(self, heads: _Optional[_Iterable[_Union[Held, _Mapping]]] = ..., sent_at_ms: _Optional[int] = ..., routers: _Optional[int] = ...) -> None: ...

class DiskSnapshot(_message.Message):
    __slots__ = ("held", "resources", "saved_at_ms")
    HELD_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    SAVED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    held: _containers.RepeatedCompositeFieldContainer[Held]
    resources: _containers.RepeatedCompositeFieldContainer[_types_pb2.Resource]
    saved_at_ms: int
    def __init__(self, held: _Optional[_Iterable[_Union[Held, _Mapping]]] = ..., resources: _Optional[_Iterable[_Union[_types_pb2.Resource, _Mapping]]] = ..., saved_at_ms: _Optional[int] = ...) -> None: ...
