from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Collection(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COLLECTION_UNSPECIFIED: _ClassVar[Collection]
    COLLECTION_CATALOG: _ClassVar[Collection]
    COLLECTION_ACCESS: _ClassVar[Collection]

class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KIND_UNSPECIFIED: _ClassVar[Kind]
    KIND_PROVIDER: _ClassVar[Kind]
    KIND_ACCOUNT: _ClassVar[Kind]
    KIND_MODEL: _ClassVar[Kind]
    KIND_ENDPOINT: _ClassVar[Kind]
    KIND_TIER: _ClassVar[Kind]
    KIND_TENANT: _ClassVar[Kind]
    KIND_KEY: _ClassVar[Kind]
COLLECTION_UNSPECIFIED: Collection
COLLECTION_CATALOG: Collection
COLLECTION_ACCESS: Collection
KIND_UNSPECIFIED: Kind
KIND_PROVIDER: Kind
KIND_ACCOUNT: Kind
KIND_MODEL: Kind
KIND_ENDPOINT: Kind
KIND_TIER: Kind
KIND_TENANT: Kind
KIND_KEY: Kind

class Resource(_message.Message):
    __slots__ = ("kind", "name", "body")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    kind: Kind
    name: str
    body: bytes
    def __init__(self, kind: _Optional[_Union[Kind, str]] = ..., name: _Optional[str] = ..., body: _Optional[bytes] = ...) -> None: ...

class ResourceName(_message.Message):
    __slots__ = ("kind", "name")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    kind: Kind
    name: str
    def __init__(self, kind: _Optional[_Union[Kind, str]] = ..., name: _Optional[str] = ...) -> None: ...

class Provider(_message.Message):
    __slots__ = ("dialect", "base_url", "allow_private", "headers", "vars", "quirks", "probe_budget_usd_per_day")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class VarsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    DIALECT_FIELD_NUMBER: _ClassVar[int]
    BASE_URL_FIELD_NUMBER: _ClassVar[int]
    ALLOW_PRIVATE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    VARS_FIELD_NUMBER: _ClassVar[int]
    QUIRKS_FIELD_NUMBER: _ClassVar[int]
    PROBE_BUDGET_USD_PER_DAY_FIELD_NUMBER: _ClassVar[int]
    dialect: str
    base_url: str
    allow_private: bool
    headers: _containers.ScalarMap[str, str]
    vars: _containers.ScalarMap[str, str]
    quirks: _containers.RepeatedScalarFieldContainer[str]
    probe_budget_usd_per_day: str
    def __init__(self, dialect: _Optional[str] = ..., base_url: _Optional[str] = ..., allow_private: _Optional[bool] = ..., headers: _Optional[_Mapping[str, str]] = ..., vars: _Optional[_Mapping[str, str]] = ..., quirks: _Optional[_Iterable[str]] = ..., probe_budget_usd_per_day: _Optional[str] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("scope", "rpm", "tpm", "concurrency", "streams", "burst", "rpd", "tpd")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    RPM_FIELD_NUMBER: _ClassVar[int]
    TPM_FIELD_NUMBER: _ClassVar[int]
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    BURST_FIELD_NUMBER: _ClassVar[int]
    RPD_FIELD_NUMBER: _ClassVar[int]
    TPD_FIELD_NUMBER: _ClassVar[int]
    scope: str
    rpm: int
    tpm: int
    concurrency: int
    streams: int
    burst: int
    rpd: int
    tpd: int
    def __init__(self, scope: _Optional[str] = ..., rpm: _Optional[int] = ..., tpm: _Optional[int] = ..., concurrency: _Optional[int] = ..., streams: _Optional[int] = ..., burst: _Optional[int] = ..., rpd: _Optional[int] = ..., tpd: _Optional[int] = ...) -> None: ...

class Account(_message.Message):
    __slots__ = ("provider", "credential", "limits", "daily_token_budget", "balance")
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    DAILY_TOKEN_BUDGET_FIELD_NUMBER: _ClassVar[int]
    BALANCE_FIELD_NUMBER: _ClassVar[int]
    provider: str
    credential: str
    limits: Limits
    daily_token_budget: int
    balance: Balance
    def __init__(self, provider: _Optional[str] = ..., credential: _Optional[str] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., daily_token_budget: _Optional[int] = ..., balance: _Optional[_Union[Balance, _Mapping]] = ...) -> None: ...

class Balance(_message.Message):
    __slots__ = ("below_usd", "api")
    BELOW_USD_FIELD_NUMBER: _ClassVar[int]
    API_FIELD_NUMBER: _ClassVar[int]
    below_usd: str
    api: str
    def __init__(self, below_usd: _Optional[str] = ..., api: _Optional[str] = ...) -> None: ...

class Capabilities(_message.Message):
    __slots__ = ("scores", "flags")
    class ScoresEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class FlagsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bool
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bool] = ...) -> None: ...
    SCORES_FIELD_NUMBER: _ClassVar[int]
    FLAGS_FIELD_NUMBER: _ClassVar[int]
    scores: _containers.ScalarMap[str, float]
    flags: _containers.ScalarMap[str, bool]
    def __init__(self, scores: _Optional[_Mapping[str, float]] = ..., flags: _Optional[_Mapping[str, bool]] = ...) -> None: ...

class RetryByClass(_message.Message):
    __slots__ = ("max_retries", "backoff_ms")
    MAX_RETRIES_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_MS_FIELD_NUMBER: _ClassVar[int]
    max_retries: int
    backoff_ms: int
    def __init__(self, max_retries: _Optional[int] = ..., backoff_ms: _Optional[int] = ...) -> None: ...

class RetryPolicy(_message.Message):
    __slots__ = ("retry_on", "max_retries", "backoff_ms", "by_class", "retry_on_given")
    class ByClassEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: RetryByClass
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[RetryByClass, _Mapping]] = ...) -> None: ...
    RETRY_ON_FIELD_NUMBER: _ClassVar[int]
    MAX_RETRIES_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_MS_FIELD_NUMBER: _ClassVar[int]
    BY_CLASS_FIELD_NUMBER: _ClassVar[int]
    RETRY_ON_GIVEN_FIELD_NUMBER: _ClassVar[int]
    retry_on: _containers.RepeatedScalarFieldContainer[str]
    max_retries: int
    backoff_ms: int
    by_class: _containers.MessageMap[str, RetryByClass]
    retry_on_given: bool
    def __init__(self, retry_on: _Optional[_Iterable[str]] = ..., max_retries: _Optional[int] = ..., backoff_ms: _Optional[int] = ..., by_class: _Optional[_Mapping[str, RetryByClass]] = ..., retry_on_given: _Optional[bool] = ...) -> None: ...

class BreakerPolicy(_message.Message):
    __slots__ = ("failure_threshold", "window_sec", "recovery_timeout_sec", "preset", "consecutive")
    FAILURE_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    WINDOW_SEC_FIELD_NUMBER: _ClassVar[int]
    RECOVERY_TIMEOUT_SEC_FIELD_NUMBER: _ClassVar[int]
    PRESET_FIELD_NUMBER: _ClassVar[int]
    CONSECUTIVE_FIELD_NUMBER: _ClassVar[int]
    failure_threshold: int
    window_sec: float
    recovery_timeout_sec: float
    preset: str
    consecutive: bool
    def __init__(self, failure_threshold: _Optional[int] = ..., window_sec: _Optional[float] = ..., recovery_timeout_sec: _Optional[float] = ..., preset: _Optional[str] = ..., consecutive: _Optional[bool] = ...) -> None: ...

class HealthPolicy(_message.Message):
    __slots__ = ("half_life_sec", "neutral", "floor", "live_weight", "probe_weight", "step_sec", "step_successes")
    HALF_LIFE_SEC_FIELD_NUMBER: _ClassVar[int]
    NEUTRAL_FIELD_NUMBER: _ClassVar[int]
    FLOOR_FIELD_NUMBER: _ClassVar[int]
    LIVE_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    PROBE_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    STEP_SEC_FIELD_NUMBER: _ClassVar[int]
    STEP_SUCCESSES_FIELD_NUMBER: _ClassVar[int]
    half_life_sec: float
    neutral: float
    floor: float
    live_weight: float
    probe_weight: float
    step_sec: float
    step_successes: int
    def __init__(self, half_life_sec: _Optional[float] = ..., neutral: _Optional[float] = ..., floor: _Optional[float] = ..., live_weight: _Optional[float] = ..., probe_weight: _Optional[float] = ..., step_sec: _Optional[float] = ..., step_successes: _Optional[int] = ...) -> None: ...

class StreamGuardPolicy(_message.Message):
    __slots__ = ("chunks", "max_hold_ms", "min_tokens_per_s")
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    MAX_HOLD_MS_FIELD_NUMBER: _ClassVar[int]
    MIN_TOKENS_PER_S_FIELD_NUMBER: _ClassVar[int]
    chunks: int
    max_hold_ms: int
    min_tokens_per_s: float
    def __init__(self, chunks: _Optional[int] = ..., max_hold_ms: _Optional[int] = ..., min_tokens_per_s: _Optional[float] = ...) -> None: ...

class Timeouts(_message.Message):
    __slots__ = ("connect_ms", "first_token_ms", "idle_ms", "total_ms")
    CONNECT_MS_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_MS_FIELD_NUMBER: _ClassVar[int]
    IDLE_MS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_MS_FIELD_NUMBER: _ClassVar[int]
    connect_ms: int
    first_token_ms: int
    idle_ms: int
    total_ms: int
    def __init__(self, connect_ms: _Optional[int] = ..., first_token_ms: _Optional[int] = ..., idle_ms: _Optional[int] = ..., total_ms: _Optional[int] = ...) -> None: ...

class ProbePolicy(_message.Message):
    __slots__ = ("interval_sec", "max_tokens", "timeout_ms", "param", "prompt", "effort", "stream", "enabled", "checks_interval_sec", "checks_max_tokens")
    INTERVAL_SEC_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    PARAM_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    EFFORT_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    CHECKS_INTERVAL_SEC_FIELD_NUMBER: _ClassVar[int]
    CHECKS_MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    interval_sec: float
    max_tokens: int
    timeout_ms: int
    param: str
    prompt: str
    effort: str
    stream: bool
    enabled: bool
    checks_interval_sec: float
    checks_max_tokens: int
    def __init__(self, interval_sec: _Optional[float] = ..., max_tokens: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., param: _Optional[str] = ..., prompt: _Optional[str] = ..., effort: _Optional[str] = ..., stream: _Optional[bool] = ..., enabled: _Optional[bool] = ..., checks_interval_sec: _Optional[float] = ..., checks_max_tokens: _Optional[int] = ...) -> None: ...

class Model(_message.Message):
    __slots__ = ("context_window", "max_output_tokens", "capabilities", "aliases", "retry", "circuit_breaker", "stream_guard", "timeouts", "probe", "substitutes", "unsupported_params", "strategy", "health")
    CONTEXT_WINDOW_FIELD_NUMBER: _ClassVar[int]
    MAX_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    ALIASES_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    CIRCUIT_BREAKER_FIELD_NUMBER: _ClassVar[int]
    STREAM_GUARD_FIELD_NUMBER: _ClassVar[int]
    TIMEOUTS_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    SUBSTITUTES_FIELD_NUMBER: _ClassVar[int]
    UNSUPPORTED_PARAMS_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    context_window: int
    max_output_tokens: int
    capabilities: Capabilities
    aliases: _containers.RepeatedScalarFieldContainer[str]
    retry: RetryPolicy
    circuit_breaker: BreakerPolicy
    stream_guard: StreamGuardPolicy
    timeouts: Timeouts
    probe: ProbePolicy
    substitutes: _containers.RepeatedScalarFieldContainer[str]
    unsupported_params: str
    strategy: str
    health: HealthPolicy
    def __init__(self, context_window: _Optional[int] = ..., max_output_tokens: _Optional[int] = ..., capabilities: _Optional[_Union[Capabilities, _Mapping]] = ..., aliases: _Optional[_Iterable[str]] = ..., retry: _Optional[_Union[RetryPolicy, _Mapping]] = ..., circuit_breaker: _Optional[_Union[BreakerPolicy, _Mapping]] = ..., stream_guard: _Optional[_Union[StreamGuardPolicy, _Mapping]] = ..., timeouts: _Optional[_Union[Timeouts, _Mapping]] = ..., probe: _Optional[_Union[ProbePolicy, _Mapping]] = ..., substitutes: _Optional[_Iterable[str]] = ..., unsupported_params: _Optional[str] = ..., strategy: _Optional[str] = ..., health: _Optional[_Union[HealthPolicy, _Mapping]] = ...) -> None: ...

class PriceTier(_message.Message):
    __slots__ = ("above_input_tokens", "input_per_1m", "output_per_1m", "cached_input_per_1m", "cache_write_per_1m", "cache_write_1h_per_1m", "audio_input_per_1m", "audio_output_per_1m", "image_input_per_1m", "image_output_per_1m")
    ABOVE_INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    INPUT_PER_1M_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_PER_1M_FIELD_NUMBER: _ClassVar[int]
    CACHED_INPUT_PER_1M_FIELD_NUMBER: _ClassVar[int]
    CACHE_WRITE_PER_1M_FIELD_NUMBER: _ClassVar[int]
    CACHE_WRITE_1H_PER_1M_FIELD_NUMBER: _ClassVar[int]
    AUDIO_INPUT_PER_1M_FIELD_NUMBER: _ClassVar[int]
    AUDIO_OUTPUT_PER_1M_FIELD_NUMBER: _ClassVar[int]
    IMAGE_INPUT_PER_1M_FIELD_NUMBER: _ClassVar[int]
    IMAGE_OUTPUT_PER_1M_FIELD_NUMBER: _ClassVar[int]
    above_input_tokens: int
    input_per_1m: str
    output_per_1m: str
    cached_input_per_1m: str
    cache_write_per_1m: str
    cache_write_1h_per_1m: str
    audio_input_per_1m: str
    audio_output_per_1m: str
    image_input_per_1m: str
    image_output_per_1m: str
    def __init__(self, above_input_tokens: _Optional[int] = ..., input_per_1m: _Optional[str] = ..., output_per_1m: _Optional[str] = ..., cached_input_per_1m: _Optional[str] = ..., cache_write_per_1m: _Optional[str] = ..., cache_write_1h_per_1m: _Optional[str] = ..., audio_input_per_1m: _Optional[str] = ..., audio_output_per_1m: _Optional[str] = ..., image_input_per_1m: _Optional[str] = ..., image_output_per_1m: _Optional[str] = ...) -> None: ...

class Price(_message.Message):
    __slots__ = ("input_per_1m", "output_per_1m", "cached_input_per_1m", "cache_write_per_1m", "cache_write_1h_per_1m", "tiers", "audio_input_per_1m", "audio_output_per_1m", "image_input_per_1m", "image_output_per_1m", "service_tiers")
    class ServiceTiersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Price
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Price, _Mapping]] = ...) -> None: ...
    INPUT_PER_1M_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_PER_1M_FIELD_NUMBER: _ClassVar[int]
    CACHED_INPUT_PER_1M_FIELD_NUMBER: _ClassVar[int]
    CACHE_WRITE_PER_1M_FIELD_NUMBER: _ClassVar[int]
    CACHE_WRITE_1H_PER_1M_FIELD_NUMBER: _ClassVar[int]
    TIERS_FIELD_NUMBER: _ClassVar[int]
    AUDIO_INPUT_PER_1M_FIELD_NUMBER: _ClassVar[int]
    AUDIO_OUTPUT_PER_1M_FIELD_NUMBER: _ClassVar[int]
    IMAGE_INPUT_PER_1M_FIELD_NUMBER: _ClassVar[int]
    IMAGE_OUTPUT_PER_1M_FIELD_NUMBER: _ClassVar[int]
    SERVICE_TIERS_FIELD_NUMBER: _ClassVar[int]
    input_per_1m: str
    output_per_1m: str
    cached_input_per_1m: str
    cache_write_per_1m: str
    cache_write_1h_per_1m: str
    tiers: _containers.RepeatedCompositeFieldContainer[PriceTier]
    audio_input_per_1m: str
    audio_output_per_1m: str
    image_input_per_1m: str
    image_output_per_1m: str
    service_tiers: _containers.MessageMap[str, Price]
    def __init__(self, input_per_1m: _Optional[str] = ..., output_per_1m: _Optional[str] = ..., cached_input_per_1m: _Optional[str] = ..., cache_write_per_1m: _Optional[str] = ..., cache_write_1h_per_1m: _Optional[str] = ..., tiers: _Optional[_Iterable[_Union[PriceTier, _Mapping]]] = ..., audio_input_per_1m: _Optional[str] = ..., audio_output_per_1m: _Optional[str] = ..., image_input_per_1m: _Optional[str] = ..., image_output_per_1m: _Optional[str] = ..., service_tiers: _Optional[_Mapping[str, Price]] = ...) -> None: ...

class DataPolicy(_message.Message):
    __slots__ = ("training", "retention")
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    training: bool
    retention: str
    def __init__(self, training: _Optional[bool] = ..., retention: _Optional[str] = ...) -> None: ...

class Fault(_message.Message):
    __slots__ = ("abort_percent", "abort_status", "delay_percent", "delay_ms")
    ABORT_PERCENT_FIELD_NUMBER: _ClassVar[int]
    ABORT_STATUS_FIELD_NUMBER: _ClassVar[int]
    DELAY_PERCENT_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    abort_percent: float
    abort_status: int
    delay_percent: float
    delay_ms: int
    def __init__(self, abort_percent: _Optional[float] = ..., abort_status: _Optional[int] = ..., delay_percent: _Optional[float] = ..., delay_ms: _Optional[int] = ...) -> None: ...

class Endpoint(_message.Message):
    __slots__ = ("model", "account", "accounts", "upstream_model", "region", "weight", "price", "supports", "supports_given", "body_json", "context_window", "max_output_tokens", "quantization", "explicit_system_prompt", "fault", "data", "state")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    ACCOUNTS_FIELD_NUMBER: _ClassVar[int]
    UPSTREAM_MODEL_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    PRICE_FIELD_NUMBER: _ClassVar[int]
    SUPPORTS_FIELD_NUMBER: _ClassVar[int]
    SUPPORTS_GIVEN_FIELD_NUMBER: _ClassVar[int]
    BODY_JSON_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_WINDOW_FIELD_NUMBER: _ClassVar[int]
    MAX_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    QUANTIZATION_FIELD_NUMBER: _ClassVar[int]
    EXPLICIT_SYSTEM_PROMPT_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    model: str
    account: str
    accounts: _containers.RepeatedScalarFieldContainer[str]
    upstream_model: str
    region: str
    weight: float
    price: Price
    supports: _containers.RepeatedScalarFieldContainer[str]
    supports_given: bool
    body_json: str
    context_window: int
    max_output_tokens: int
    quantization: str
    explicit_system_prompt: bool
    fault: Fault
    data: DataPolicy
    state: str
    def __init__(self, model: _Optional[str] = ..., account: _Optional[str] = ..., accounts: _Optional[_Iterable[str]] = ..., upstream_model: _Optional[str] = ..., region: _Optional[str] = ..., weight: _Optional[float] = ..., price: _Optional[_Union[Price, _Mapping]] = ..., supports: _Optional[_Iterable[str]] = ..., supports_given: _Optional[bool] = ..., body_json: _Optional[str] = ..., context_window: _Optional[int] = ..., max_output_tokens: _Optional[int] = ..., quantization: _Optional[str] = ..., explicit_system_prompt: _Optional[bool] = ..., fault: _Optional[_Union[Fault, _Mapping]] = ..., data: _Optional[_Union[DataPolicy, _Mapping]] = ..., state: _Optional[str] = ...) -> None: ...

class Tier(_message.Message):
    __slots__ = ("chain",)
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    chain: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, chain: _Optional[_Iterable[str]] = ...) -> None: ...

class Budget(_message.Message):
    __slots__ = ("usd", "tokens", "window", "soft", "since_ms")
    USD_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    SOFT_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    usd: str
    tokens: int
    window: str
    soft: bool
    since_ms: int
    def __init__(self, usd: _Optional[str] = ..., tokens: _Optional[int] = ..., window: _Optional[str] = ..., soft: _Optional[bool] = ..., since_ms: _Optional[int] = ...) -> None: ...

class Tenant(_message.Message):
    __slots__ = ("disabled", "limits", "priority", "budgets", "provider_caps", "capture_content")
    class ProviderCapsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Budget
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Budget, _Mapping]] = ...) -> None: ...
    DISABLED_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    BUDGETS_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_CAPS_FIELD_NUMBER: _ClassVar[int]
    CAPTURE_CONTENT_FIELD_NUMBER: _ClassVar[int]
    disabled: bool
    limits: Limits
    priority: str
    budgets: _containers.RepeatedCompositeFieldContainer[Budget]
    provider_caps: _containers.MessageMap[str, Budget]
    capture_content: bool
    def __init__(self, disabled: _Optional[bool] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., priority: _Optional[str] = ..., budgets: _Optional[_Iterable[_Union[Budget, _Mapping]]] = ..., provider_caps: _Optional[_Mapping[str, Budget]] = ..., capture_content: _Optional[bool] = ...) -> None: ...

class Key(_message.Message):
    __slots__ = ("tenant", "secret_sha256", "expires_at_ms", "directives", "require_directives", "models", "limits", "priority", "budgets", "previous_sha256", "previous_expires_at_ms", "require_pricing", "tags")
    class TagsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TENANT_FIELD_NUMBER: _ClassVar[int]
    SECRET_SHA256_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_MS_FIELD_NUMBER: _ClassVar[int]
    DIRECTIVES_FIELD_NUMBER: _ClassVar[int]
    REQUIRE_DIRECTIVES_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    BUDGETS_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_SHA256_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_EXPIRES_AT_MS_FIELD_NUMBER: _ClassVar[int]
    REQUIRE_PRICING_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    secret_sha256: bytes
    expires_at_ms: int
    directives: _containers.RepeatedScalarFieldContainer[str]
    require_directives: _containers.RepeatedScalarFieldContainer[str]
    models: _containers.RepeatedScalarFieldContainer[str]
    limits: Limits
    priority: str
    budgets: _containers.RepeatedCompositeFieldContainer[Budget]
    previous_sha256: bytes
    previous_expires_at_ms: int
    require_pricing: bool
    tags: _containers.ScalarMap[str, str]
    def __init__(self, tenant: _Optional[str] = ..., secret_sha256: _Optional[bytes] = ..., expires_at_ms: _Optional[int] = ..., directives: _Optional[_Iterable[str]] = ..., require_directives: _Optional[_Iterable[str]] = ..., models: _Optional[_Iterable[str]] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., priority: _Optional[str] = ..., budgets: _Optional[_Iterable[_Union[Budget, _Mapping]]] = ..., previous_sha256: _Optional[bytes] = ..., previous_expires_at_ms: _Optional[int] = ..., require_pricing: _Optional[bool] = ..., tags: _Optional[_Mapping[str, str]] = ...) -> None: ...
