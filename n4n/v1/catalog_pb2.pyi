from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Problem(_message.Message):
    __slots__ = ("field", "message")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    field: str
    message: str
    def __init__(self, field: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class ErrorDetail(_message.Message):
    __slots__ = ("code", "message", "problems", "head_version")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    HEAD_VERSION_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    problems: _containers.RepeatedCompositeFieldContainer[Problem]
    head_version: int
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., problems: _Optional[_Iterable[_Union[Problem, _Mapping]]] = ..., head_version: _Optional[int] = ...) -> None: ...

class Change(_message.Message):
    __slots__ = ("path", "before", "after")
    PATH_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    path: str
    before: str
    after: str
    def __init__(self, path: _Optional[str] = ..., before: _Optional[str] = ..., after: _Optional[str] = ...) -> None: ...

class VersionInfo(_message.Message):
    __slots__ = ("version", "author", "committed_at_ms", "message", "checksum", "endpoints", "changes")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    version: int
    author: str
    committed_at_ms: int
    message: str
    checksum: str
    endpoints: int
    changes: int
    def __init__(self, version: _Optional[int] = ..., author: _Optional[str] = ..., committed_at_ms: _Optional[int] = ..., message: _Optional[str] = ..., checksum: _Optional[str] = ..., endpoints: _Optional[int] = ..., changes: _Optional[int] = ...) -> None: ...

class ApplyRequest(_message.Message):
    __slots__ = ("document_json", "dry_run", "expect_version", "message", "author", "allow_shrink")
    DOCUMENT_JSON_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    EXPECT_VERSION_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    ALLOW_SHRINK_FIELD_NUMBER: _ClassVar[int]
    document_json: str
    dry_run: bool
    expect_version: int
    message: str
    author: str
    allow_shrink: bool
    def __init__(self, document_json: _Optional[str] = ..., dry_run: _Optional[bool] = ..., expect_version: _Optional[int] = ..., message: _Optional[str] = ..., author: _Optional[str] = ..., allow_shrink: _Optional[bool] = ...) -> None: ...

class ApplyReply(_message.Message):
    __slots__ = ("version", "changes", "unchanged", "dry_run")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    version: VersionInfo
    changes: _containers.RepeatedCompositeFieldContainer[Change]
    unchanged: bool
    dry_run: bool
    def __init__(self, version: _Optional[_Union[VersionInfo, _Mapping]] = ..., changes: _Optional[_Iterable[_Union[Change, _Mapping]]] = ..., unchanged: _Optional[bool] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class DiffRequest(_message.Message):
    __slots__ = ("document_json",)
    DOCUMENT_JSON_FIELD_NUMBER: _ClassVar[int]
    document_json: str
    def __init__(self, document_json: _Optional[str] = ...) -> None: ...

class DiffReply(_message.Message):
    __slots__ = ("changes", "head_version")
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    HEAD_VERSION_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[Change]
    head_version: int
    def __init__(self, changes: _Optional[_Iterable[_Union[Change, _Mapping]]] = ..., head_version: _Optional[int] = ...) -> None: ...

class GetRequest(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class GetReply(_message.Message):
    __slots__ = ("version", "document_json", "endpoint_states", "changes")
    class EndpointStatesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_JSON_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_STATES_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    version: VersionInfo
    document_json: str
    endpoint_states: _containers.ScalarMap[str, str]
    changes: _containers.RepeatedCompositeFieldContainer[Change]
    def __init__(self, version: _Optional[_Union[VersionInfo, _Mapping]] = ..., document_json: _Optional[str] = ..., endpoint_states: _Optional[_Mapping[str, str]] = ..., changes: _Optional[_Iterable[_Union[Change, _Mapping]]] = ...) -> None: ...

class HistoryRequest(_message.Message):
    __slots__ = ("limit", "before_version")
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    BEFORE_VERSION_FIELD_NUMBER: _ClassVar[int]
    limit: int
    before_version: int
    def __init__(self, limit: _Optional[int] = ..., before_version: _Optional[int] = ...) -> None: ...

class HistoryReply(_message.Message):
    __slots__ = ("versions",)
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    versions: _containers.RepeatedCompositeFieldContainer[VersionInfo]
    def __init__(self, versions: _Optional[_Iterable[_Union[VersionInfo, _Mapping]]] = ...) -> None: ...

class RollbackRequest(_message.Message):
    __slots__ = ("version", "message", "author", "allow_shrink", "expect_version")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    ALLOW_SHRINK_FIELD_NUMBER: _ClassVar[int]
    EXPECT_VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    message: str
    author: str
    allow_shrink: bool
    expect_version: int
    def __init__(self, version: _Optional[int] = ..., message: _Optional[str] = ..., author: _Optional[str] = ..., allow_shrink: _Optional[bool] = ..., expect_version: _Optional[int] = ...) -> None: ...

class ValidateRequest(_message.Message):
    __slots__ = ("document_json",)
    DOCUMENT_JSON_FIELD_NUMBER: _ClassVar[int]
    document_json: str
    def __init__(self, document_json: _Optional[str] = ...) -> None: ...

class ValidateReply(_message.Message):
    __slots__ = ("problems",)
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    problems: _containers.RepeatedCompositeFieldContainer[Problem]
    def __init__(self, problems: _Optional[_Iterable[_Union[Problem, _Mapping]]] = ...) -> None: ...

class SetEndpointStateRequest(_message.Message):
    __slots__ = ("endpoint", "state", "message", "author")
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    endpoint: str
    state: str
    message: str
    author: str
    def __init__(self, endpoint: _Optional[str] = ..., state: _Optional[str] = ..., message: _Optional[str] = ..., author: _Optional[str] = ...) -> None: ...
