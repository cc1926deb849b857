from n4n.v1 import types_pb2 as _types_pb2
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

class HealthRequest(_message.Message):
    __slots__ = ("model", "window_ms")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    WINDOW_MS_FIELD_NUMBER: _ClassVar[int]
    model: str
    window_ms: int
    def __init__(self, model: _Optional[str] = ..., window_ms: _Optional[int] = ...) -> None: ...

class EndpointHealth(_message.Message):
    __slots__ = ("endpoint", "model", "provider", "accounts", "region", "state", "weight", "score", "breaker", "breaker_until_ms", "cooldown_until_ms", "cooldown", "latency_ms", "ttft_ms", "ttft_p50_ms", "ttft_p95_ms", "tokens_per_s", "tokens_per_s_p50", "tokens_per_s_p95", "attempts", "errors", "price", "last_success_ms", "findings")
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    ACCOUNTS_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    BREAKER_FIELD_NUMBER: _ClassVar[int]
    BREAKER_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    COOLDOWN_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    COOLDOWN_FIELD_NUMBER: _ClassVar[int]
    LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
    TTFT_MS_FIELD_NUMBER: _ClassVar[int]
    TTFT_P50_MS_FIELD_NUMBER: _ClassVar[int]
    TTFT_P95_MS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_S_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_S_P50_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_S_P95_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    PRICE_FIELD_NUMBER: _ClassVar[int]
    LAST_SUCCESS_MS_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    endpoint: str
    model: str
    provider: str
    accounts: _containers.RepeatedScalarFieldContainer[str]
    region: str
    state: str
    weight: float
    score: float
    breaker: str
    breaker_until_ms: int
    cooldown_until_ms: int
    cooldown: str
    latency_ms: float
    ttft_ms: float
    ttft_p50_ms: float
    ttft_p95_ms: float
    tokens_per_s: float
    tokens_per_s_p50: float
    tokens_per_s_p95: float
    attempts: int
    errors: int
    price: _types_pb2.Price
    last_success_ms: int
    findings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, endpoint: _Optional[str] = ..., model: _Optional[str] = ..., provider: _Optional[str] = ..., accounts: _Optional[_Iterable[str]] = ..., region: _Optional[str] = ..., state: _Optional[str] = ..., weight: _Optional[float] = ..., score: _Optional[float] = ..., breaker: _Optional[str] = ..., breaker_until_ms: _Optional[int] = ..., cooldown_until_ms: _Optional[int] = ..., cooldown: _Optional[str] = ..., latency_ms: _Optional[float] = ..., ttft_ms: _Optional[float] = ..., ttft_p50_ms: _Optional[float] = ..., ttft_p95_ms: _Optional[float] = ..., tokens_per_s: _Optional[float] = ..., tokens_per_s_p50: _Optional[float] = ..., tokens_per_s_p95: _Optional[float] = ..., attempts: _Optional[int] = ..., errors: _Optional[int] = ..., price: _Optional[_Union[_types_pb2.Price, _Mapping]] = ..., last_success_ms: _Optional[int] = ..., findings: _Optional[_Iterable[str]] = ...) -> None: ...

class HealthReply(_message.Message):
    __slots__ = ("endpoints", "redis", "database", "cut")
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    REDIS_FIELD_NUMBER: _ClassVar[int]
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    endpoints: _containers.RepeatedCompositeFieldContainer[EndpointHealth]
    redis: str
    database: str
    cut: bool
    def __init__(self, endpoints: _Optional[_Iterable[_Union[EndpointHealth, _Mapping]]] = ..., redis: _Optional[str] = ..., database: _Optional[str] = ..., cut: _Optional[bool] = ...) -> None: ...
