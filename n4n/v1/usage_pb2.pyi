from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class UsageQuery(_message.Message):
    __slots__ = ("by", "since_ms", "until_ms", "label", "only")
    class OnlyEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    BY_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    ONLY_FIELD_NUMBER: _ClassVar[int]
    by: str
    since_ms: int
    until_ms: int
    label: str
    only: _containers.ScalarMap[str, str]
    def __init__(self, by: _Optional[str] = ..., since_ms: _Optional[int] = ..., until_ms: _Optional[int] = ..., label: _Optional[str] = ..., only: _Optional[_Mapping[str, str]] = ...) -> None: ...

class UsageRow(_message.Message):
    __slots__ = ("group", "requests", "prompt_tokens", "cached_tokens", "completion_tokens", "cost_usd", "attempts", "failed", "unknown", "unpriced", "estimated", "cache_write_tokens", "reasoning_tokens", "counted_completion_tokens", "compared_completion_tokens", "counted_prompt_tokens", "compared_prompt_tokens", "groups")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COST_USD_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    UNPRICED_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_FIELD_NUMBER: _ClassVar[int]
    CACHE_WRITE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REASONING_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COUNTED_COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPARED_COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COUNTED_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPARED_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    group: str
    requests: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost_usd: str
    attempts: int
    failed: int
    unknown: int
    unpriced: int
    estimated: int
    cache_write_tokens: int
    reasoning_tokens: int
    counted_completion_tokens: int
    compared_completion_tokens: int
    counted_prompt_tokens: int
    compared_prompt_tokens: int
    groups: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, group: _Optional[str] = ..., requests: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., cached_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ..., cost_usd: _Optional[str] = ..., attempts: _Optional[int] = ..., failed: _Optional[int] = ..., unknown: _Optional[int] = ..., unpriced: _Optional[int] = ..., estimated: _Optional[int] = ..., cache_write_tokens: _Optional[int] = ..., reasoning_tokens: _Optional[int] = ..., counted_completion_tokens: _Optional[int] = ..., compared_completion_tokens: _Optional[int] = ..., counted_prompt_tokens: _Optional[int] = ..., compared_prompt_tokens: _Optional[int] = ..., groups: _Optional[_Iterable[str]] = ...) -> None: ...

class UsageReply(_message.Message):
    __slots__ = ("rows",)
    ROWS_FIELD_NUMBER: _ClassVar[int]
    rows: _containers.RepeatedCompositeFieldContainer[UsageRow]
    def __init__(self, rows: _Optional[_Iterable[_Union[UsageRow, _Mapping]]] = ...) -> None: ...

class UsageReport(_message.Message):
    __slots__ = ("node", "source", "offset", "lines")
    NODE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    node: str
    source: str
    offset: int
    lines: bytes
    def __init__(self, node: _Optional[str] = ..., source: _Optional[str] = ..., offset: _Optional[int] = ..., lines: _Optional[bytes] = ...) -> None: ...

class UsageReceipt(_message.Message):
    __slots__ = ("offset", "unreadable")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    UNREADABLE_FIELD_NUMBER: _ClassVar[int]
    offset: int
    unreadable: int
    def __init__(self, offset: _Optional[int] = ..., unreadable: _Optional[int] = ...) -> None: ...

class UsageExport(_message.Message):
    __slots__ = ("by", "since_ms", "until_ms", "label")
    BY_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    by: str
    since_ms: int
    until_ms: int
    label: str
    def __init__(self, by: _Optional[str] = ..., since_ms: _Optional[int] = ..., until_ms: _Optional[int] = ..., label: _Optional[str] = ...) -> None: ...

class UsageExportPart(_message.Message):
    __slots__ = ("csv", "lines")
    CSV_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    csv: bytes
    lines: int
    def __init__(self, csv: _Optional[bytes] = ..., lines: _Optional[int] = ...) -> None: ...

class UsageRerate(_message.Message):
    __slots__ = ("label", "since_ms", "until_ms", "author", "catalog_version", "prices_json")
    LABEL_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    CATALOG_VERSION_FIELD_NUMBER: _ClassVar[int]
    PRICES_JSON_FIELD_NUMBER: _ClassVar[int]
    label: str
    since_ms: int
    until_ms: int
    author: str
    catalog_version: int
    prices_json: str
    def __init__(self, label: _Optional[str] = ..., since_ms: _Optional[int] = ..., until_ms: _Optional[int] = ..., author: _Optional[str] = ..., catalog_version: _Optional[int] = ..., prices_json: _Optional[str] = ...) -> None: ...

class UsageRating(_message.Message):
    __slots__ = ("label", "since_ms", "until_ms", "author", "created_at_ms", "prices", "rows", "kept", "unpriced", "before_usd", "cost_usd", "done")
    LABEL_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    PRICES_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    UNPRICED_FIELD_NUMBER: _ClassVar[int]
    BEFORE_USD_FIELD_NUMBER: _ClassVar[int]
    COST_USD_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    label: str
    since_ms: int
    until_ms: int
    author: str
    created_at_ms: int
    prices: str
    rows: int
    kept: int
    unpriced: int
    before_usd: str
    cost_usd: str
    done: bool
    def __init__(self, label: _Optional[str] = ..., since_ms: _Optional[int] = ..., until_ms: _Optional[int] = ..., author: _Optional[str] = ..., created_at_ms: _Optional[int] = ..., prices: _Optional[str] = ..., rows: _Optional[int] = ..., kept: _Optional[int] = ..., unpriced: _Optional[int] = ..., before_usd: _Optional[str] = ..., cost_usd: _Optional[str] = ..., done: _Optional[bool] = ...) -> None: ...

class UsageRatingsQuery(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UsageRatings(_message.Message):
    __slots__ = ("ratings",)
    RATINGS_FIELD_NUMBER: _ClassVar[int]
    ratings: _containers.RepeatedCompositeFieldContainer[UsageRating]
    def __init__(self, ratings: _Optional[_Iterable[_Union[UsageRating, _Mapping]]] = ...) -> None: ...
