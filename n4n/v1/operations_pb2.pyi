from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Vitals(_message.Message):
    __slots__ = ("node", "run", "store_up", "usage_waiting_bytes", "waiting", "ended", "failed", "fell_back", "changes", "inversions", "quotas", "accounts_out", "candidates")
    class WaitingEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class CandidatesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    NODE_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    STORE_UP_FIELD_NUMBER: _ClassVar[int]
    USAGE_WAITING_BYTES_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    FELL_BACK_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    INVERSIONS_FIELD_NUMBER: _ClassVar[int]
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    ACCOUNTS_OUT_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    node: str
    run: str
    store_up: bool
    usage_waiting_bytes: int
    waiting: _containers.ScalarMap[str, int]
    ended: int
    failed: int
    fell_back: int
    changes: int
    inversions: int
    quotas: _containers.RepeatedCompositeFieldContainer[QuotaUse]
    accounts_out: _containers.RepeatedCompositeFieldContainer[AccountOut]
    candidates: _containers.ScalarMap[str, int]
    def __init__(self, node: _Optional[str] = ..., run: _Optional[str] = ..., store_up: _Optional[bool] = ..., usage_waiting_bytes: _Optional[int] = ..., waiting: _Optional[_Mapping[str, int]] = ..., ended: _Optional[int] = ..., failed: _Optional[int] = ..., fell_back: _Optional[int] = ..., changes: _Optional[int] = ..., inversions: _Optional[int] = ..., quotas: _Optional[_Iterable[_Union[QuotaUse, _Mapping]]] = ..., accounts_out: _Optional[_Iterable[_Union[AccountOut, _Mapping]]] = ..., candidates: _Optional[_Mapping[str, int]] = ...) -> None: ...

class QuotaUse(_message.Message):
    __slots__ = ("provider", "account", "limit_type", "used")
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    LIMIT_TYPE_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    provider: str
    account: str
    limit_type: str
    used: float
    def __init__(self, provider: _Optional[str] = ..., account: _Optional[str] = ..., limit_type: _Optional[str] = ..., used: _Optional[float] = ...) -> None: ...

class AccountOut(_message.Message):
    __slots__ = ("provider", "account", "reason")
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    provider: str
    account: str
    reason: str
    def __init__(self, provider: _Optional[str] = ..., account: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class VitalsReceipt(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SlaQuery(_message.Message):
    __slots__ = ("model", "since_ms", "hours")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    HOURS_FIELD_NUMBER: _ClassVar[int]
    model: str
    since_ms: int
    hours: bool
    def __init__(self, model: _Optional[str] = ..., since_ms: _Optional[int] = ..., hours: _Optional[bool] = ...) -> None: ...

class SlaHour(_message.Message):
    __slots__ = ("hour_ms", "attempts", "failed", "latency_p50_ms", "latency_p95_ms", "latency_p99_ms", "ttft_p50_ms", "ttft_p95_ms", "ttft_p99_ms", "tokens_per_s")
    HOUR_MS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    LATENCY_P50_MS_FIELD_NUMBER: _ClassVar[int]
    LATENCY_P95_MS_FIELD_NUMBER: _ClassVar[int]
    LATENCY_P99_MS_FIELD_NUMBER: _ClassVar[int]
    TTFT_P50_MS_FIELD_NUMBER: _ClassVar[int]
    TTFT_P95_MS_FIELD_NUMBER: _ClassVar[int]
    TTFT_P99_MS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_S_FIELD_NUMBER: _ClassVar[int]
    hour_ms: int
    attempts: int
    failed: int
    latency_p50_ms: float
    latency_p95_ms: float
    latency_p99_ms: float
    ttft_p50_ms: float
    ttft_p95_ms: float
    ttft_p99_ms: float
    tokens_per_s: float
    def __init__(self, hour_ms: _Optional[int] = ..., attempts: _Optional[int] = ..., failed: _Optional[int] = ..., latency_p50_ms: _Optional[float] = ..., latency_p95_ms: _Optional[float] = ..., latency_p99_ms: _Optional[float] = ..., ttft_p50_ms: _Optional[float] = ..., ttft_p95_ms: _Optional[float] = ..., ttft_p99_ms: _Optional[float] = ..., tokens_per_s: _Optional[float] = ...) -> None: ...

class SlaRow(_message.Message):
    __slots__ = ("provider", "model", "region", "attempts", "error_rate", "latency_p95_ms", "baseline_latency_p95_ms", "latency_drift", "ttft_p95_ms", "baseline_ttft_p95_ms", "ttft_drift", "tokens_per_s", "baseline_tokens_per_s", "drifts", "hours")
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    ERROR_RATE_FIELD_NUMBER: _ClassVar[int]
    LATENCY_P95_MS_FIELD_NUMBER: _ClassVar[int]
    BASELINE_LATENCY_P95_MS_FIELD_NUMBER: _ClassVar[int]
    LATENCY_DRIFT_FIELD_NUMBER: _ClassVar[int]
    TTFT_P95_MS_FIELD_NUMBER: _ClassVar[int]
    BASELINE_TTFT_P95_MS_FIELD_NUMBER: _ClassVar[int]
    TTFT_DRIFT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_S_FIELD_NUMBER: _ClassVar[int]
    BASELINE_TOKENS_PER_S_FIELD_NUMBER: _ClassVar[int]
    DRIFTS_FIELD_NUMBER: _ClassVar[int]
    HOURS_FIELD_NUMBER: _ClassVar[int]
    provider: str
    model: str
    region: str
    attempts: int
    error_rate: float
    latency_p95_ms: float
    baseline_latency_p95_ms: float
    latency_drift: float
    ttft_p95_ms: float
    baseline_ttft_p95_ms: float
    ttft_drift: float
    tokens_per_s: float
    baseline_tokens_per_s: float
    drifts: bool
    hours: _containers.RepeatedCompositeFieldContainer[SlaHour]
    def __init__(self, provider: _Optional[str] = ..., model: _Optional[str] = ..., region: _Optional[str] = ..., attempts: _Optional[int] = ..., error_rate: _Optional[float] = ..., latency_p95_ms: _Optional[float] = ..., baseline_latency_p95_ms: _Optional[float] = ..., latency_drift: _Optional[float] = ..., ttft_p95_ms: _Optional[float] = ..., baseline_ttft_p95_ms: _Optional[float] = ..., ttft_drift: _Optional[float] = ..., tokens_per_s: _Optional[float] = ..., baseline_tokens_per_s: _Optional[float] = ..., drifts: _Optional[bool] = ..., hours: _Optional[_Iterable[_Union[SlaHour, _Mapping]]] = ...) -> None: ...

class SlaReply(_message.Message):
    __slots__ = ("rows",)
    ROWS_FIELD_NUMBER: _ClassVar[int]
    rows: _containers.RepeatedCompositeFieldContainer[SlaRow]
    def __init__(self, rows: _Optional[_Iterable[_Union[SlaRow, _Mapping]]] = ...) -> None: ...

class AlertsQuery(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AlertInfo(_message.Message):
    __slots__ = ("name", "severity", "labels", "summary", "value", "since_ms", "firing")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    FIRING_FIELD_NUMBER: _ClassVar[int]
    name: str
    severity: str
    labels: _containers.ScalarMap[str, str]
    summary: str
    value: float
    since_ms: int
    firing: bool
    def __init__(self, name: _Optional[str] = ..., severity: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., summary: _Optional[str] = ..., value: _Optional[float] = ..., since_ms: _Optional[int] = ..., firing: _Optional[bool] = ...) -> None: ...

class AlertsReply(_message.Message):
    __slots__ = ("alerts",)
    ALERTS_FIELD_NUMBER: _ClassVar[int]
    alerts: _containers.RepeatedCompositeFieldContainer[AlertInfo]
    def __init__(self, alerts: _Optional[_Iterable[_Union[AlertInfo, _Mapping]]] = ...) -> None: ...

class AttemptsQuery(_message.Message):
    __slots__ = ("request_id", "since_ms", "until_ms")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    since_ms: int
    until_ms: int
    def __init__(self, request_id: _Optional[str] = ..., since_ms: _Optional[int] = ..., until_ms: _Optional[int] = ...) -> None: ...

class AttemptInfo(_message.Message):
    __slots__ = ("attempt_id", "attempt_no", "started_at_ms", "tenant", "key_id", "endpoint", "provider", "account", "model", "state", "error_class", "status", "prompt_tokens", "completion_tokens", "cost_usd", "latency_ms", "ttft_ms", "estimated")
    ATTEMPT_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_NO_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ERROR_CLASS_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COST_USD_FIELD_NUMBER: _ClassVar[int]
    LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
    TTFT_MS_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_FIELD_NUMBER: _ClassVar[int]
    attempt_id: str
    attempt_no: int
    started_at_ms: int
    tenant: str
    key_id: str
    endpoint: str
    provider: str
    account: str
    model: str
    state: str
    error_class: str
    status: int
    prompt_tokens: int
    completion_tokens: int
    cost_usd: str
    latency_ms: float
    ttft_ms: float
    estimated: bool
    def __init__(self, attempt_id: _Optional[str] = ..., attempt_no: _Optional[int] = ..., started_at_ms: _Optional[int] = ..., tenant: _Optional[str] = ..., key_id: _Optional[str] = ..., endpoint: _Optional[str] = ..., provider: _Optional[str] = ..., account: _Optional[str] = ..., model: _Optional[str] = ..., state: _Optional[str] = ..., error_class: _Optional[str] = ..., status: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ..., cost_usd: _Optional[str] = ..., latency_ms: _Optional[float] = ..., ttft_ms: _Optional[float] = ..., estimated: _Optional[bool] = ...) -> None: ...

class AttemptsReply(_message.Message):
    __slots__ = ("attempts",)
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    attempts: _containers.RepeatedCompositeFieldContainer[AttemptInfo]
    def __init__(self, attempts: _Optional[_Iterable[_Union[AttemptInfo, _Mapping]]] = ...) -> None: ...
