from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class NodesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NodeInfo(_message.Message):
    __slots__ = ("node", "role", "build", "connected", "applied_version", "head_version", "access_version", "access_head_version", "lag_ms", "last_nack", "last_seen_ms", "last_ack_ms", "findings")
    NODE_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    BUILD_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    APPLIED_VERSION_FIELD_NUMBER: _ClassVar[int]
    HEAD_VERSION_FIELD_NUMBER: _ClassVar[int]
    ACCESS_VERSION_FIELD_NUMBER: _ClassVar[int]
    ACCESS_HEAD_VERSION_FIELD_NUMBER: _ClassVar[int]
    LAG_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_NACK_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_ACK_MS_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    node: str
    role: str
    build: str
    connected: bool
    applied_version: int
    head_version: int
    access_version: int
    access_head_version: int
    lag_ms: int
    last_nack: str
    last_seen_ms: int
    last_ack_ms: int
    findings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, node: _Optional[str] = ..., role: _Optional[str] = ..., build: _Optional[str] = ..., connected: _Optional[bool] = ..., applied_version: _Optional[int] = ..., head_version: _Optional[int] = ..., access_version: _Optional[int] = ..., access_head_version: _Optional[int] = ..., lag_ms: _Optional[int] = ..., last_nack: _Optional[str] = ..., last_seen_ms: _Optional[int] = ..., last_ack_ms: _Optional[int] = ..., findings: _Optional[_Iterable[str]] = ...) -> None: ...

class NodesReply(_message.Message):
    __slots__ = ("nodes",)
    NODES_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[NodeInfo]
    def __init__(self, nodes: _Optional[_Iterable[_Union[NodeInfo, _Mapping]]] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("build", "catalog_version", "access_version", "database", "redis", "nodes")
    BUILD_FIELD_NUMBER: _ClassVar[int]
    CATALOG_VERSION_FIELD_NUMBER: _ClassVar[int]
    ACCESS_VERSION_FIELD_NUMBER: _ClassVar[int]
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    REDIS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    build: str
    catalog_version: int
    access_version: int
    database: str
    redis: str
    nodes: _containers.RepeatedCompositeFieldContainer[NodeInfo]
    def __init__(self, build: _Optional[str] = ..., catalog_version: _Optional[int] = ..., access_version: _Optional[int] = ..., database: _Optional[str] = ..., redis: _Optional[str] = ..., nodes: _Optional[_Iterable[_Union[NodeInfo, _Mapping]]] = ...) -> None: ...
