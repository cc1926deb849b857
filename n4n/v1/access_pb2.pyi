from n4n.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class KeySettings(_message.Message):
    __slots__ = ("limits", "directives", "require_directives", "models", "expires_at_ms", "budgets", "priority", "require_pricing", "tags")
    class TagsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    DIRECTIVES_FIELD_NUMBER: _ClassVar[int]
    REQUIRE_DIRECTIVES_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_MS_FIELD_NUMBER: _ClassVar[int]
    BUDGETS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    REQUIRE_PRICING_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    limits: _types_pb2.Limits
    directives: _containers.RepeatedScalarFieldContainer[str]
    require_directives: _containers.RepeatedScalarFieldContainer[str]
    models: _containers.RepeatedScalarFieldContainer[str]
    expires_at_ms: int
    budgets: _containers.RepeatedCompositeFieldContainer[_types_pb2.Budget]
    priority: str
    require_pricing: bool
    tags: _containers.ScalarMap[str, str]
    def __init__(self, limits: _Optional[_Union[_types_pb2.Limits, _Mapping]] = ..., directives: _Optional[_Iterable[str]] = ..., require_directives: _Optional[_Iterable[str]] = ..., models: _Optional[_Iterable[str]] = ..., expires_at_ms: _Optional[int] = ..., budgets: _Optional[_Iterable[_Union[_types_pb2.Budget, _Mapping]]] = ..., priority: _Optional[str] = ..., require_pricing: _Optional[bool] = ..., tags: _Optional[_Mapping[str, str]] = ...) -> None: ...

class KeyInfo(_message.Message):
    __slots__ = ("public_id", "tenant", "settings", "state", "created_at_ms", "revoked_at_ms", "author", "access_version")
    PUBLIC_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    REVOKED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    ACCESS_VERSION_FIELD_NUMBER: _ClassVar[int]
    public_id: str
    tenant: str
    settings: KeySettings
    state: str
    created_at_ms: int
    revoked_at_ms: int
    author: str
    access_version: int
    def __init__(self, public_id: _Optional[str] = ..., tenant: _Optional[str] = ..., settings: _Optional[_Union[KeySettings, _Mapping]] = ..., state: _Optional[str] = ..., created_at_ms: _Optional[int] = ..., revoked_at_ms: _Optional[int] = ..., author: _Optional[str] = ..., access_version: _Optional[int] = ...) -> None: ...

class CreateKeyRequest(_message.Message):
    __slots__ = ("tenant", "settings", "author")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    settings: KeySettings
    author: str
    def __init__(self, tenant: _Optional[str] = ..., settings: _Optional[_Union[KeySettings, _Mapping]] = ..., author: _Optional[str] = ...) -> None: ...

class CreateKeyReply(_message.Message):
    __slots__ = ("key", "secret")
    KEY_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    key: KeyInfo
    secret: str
    def __init__(self, key: _Optional[_Union[KeyInfo, _Mapping]] = ..., secret: _Optional[str] = ...) -> None: ...

class ListKeysRequest(_message.Message):
    __slots__ = ("tenant", "include_revoked")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_REVOKED_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    include_revoked: bool
    def __init__(self, tenant: _Optional[str] = ..., include_revoked: _Optional[bool] = ...) -> None: ...

class ListKeysReply(_message.Message):
    __slots__ = ("keys",)
    KEYS_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedCompositeFieldContainer[KeyInfo]
    def __init__(self, keys: _Optional[_Iterable[_Union[KeyInfo, _Mapping]]] = ...) -> None: ...

class ShowKeyRequest(_message.Message):
    __slots__ = ("public_id",)
    PUBLIC_ID_FIELD_NUMBER: _ClassVar[int]
    public_id: str
    def __init__(self, public_id: _Optional[str] = ...) -> None: ...

class UpdateKeyRequest(_message.Message):
    __slots__ = ("public_id", "settings", "fields", "author")
    PUBLIC_ID_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    public_id: str
    settings: KeySettings
    fields: _containers.RepeatedScalarFieldContainer[str]
    author: str
    def __init__(self, public_id: _Optional[str] = ..., settings: _Optional[_Union[KeySettings, _Mapping]] = ..., fields: _Optional[_Iterable[str]] = ..., author: _Optional[str] = ...) -> None: ...

class RotateKeyRequest(_message.Message):
    __slots__ = ("public_id", "author", "grace_ms")
    PUBLIC_ID_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    GRACE_MS_FIELD_NUMBER: _ClassVar[int]
    public_id: str
    author: str
    grace_ms: int
    def __init__(self, public_id: _Optional[str] = ..., author: _Optional[str] = ..., grace_ms: _Optional[int] = ...) -> None: ...

class RevokeKeyRequest(_message.Message):
    __slots__ = ("public_id", "author")
    PUBLIC_ID_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    public_id: str
    author: str
    def __init__(self, public_id: _Optional[str] = ..., author: _Optional[str] = ...) -> None: ...

class TenantSettings(_message.Message):
    __slots__ = ("limits", "priority", "budgets", "provider_caps", "capture_content")
    class ProviderCapsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _types_pb2.Budget
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_types_pb2.Budget, _Mapping]] = ...) -> None: ...
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    BUDGETS_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_CAPS_FIELD_NUMBER: _ClassVar[int]
    CAPTURE_CONTENT_FIELD_NUMBER: _ClassVar[int]
    limits: _types_pb2.Limits
    priority: str
    budgets: _containers.RepeatedCompositeFieldContainer[_types_pb2.Budget]
    provider_caps: _containers.MessageMap[str, _types_pb2.Budget]
    capture_content: bool
    def __init__(self, limits: _Optional[_Union[_types_pb2.Limits, _Mapping]] = ..., priority: _Optional[str] = ..., budgets: _Optional[_Iterable[_Union[_types_pb2.Budget, _Mapping]]] = ..., provider_caps: _Optional[_Mapping[str, _types_pb2.Budget]] = ..., capture_content: _Optional[bool] = ...) -> None: ...

class TenantInfo(_message.Message):
    __slots__ = ("name", "settings", "created_at_ms", "author", "access_version", "keys")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    ACCESS_VERSION_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    name: str
    settings: TenantSettings
    created_at_ms: int
    author: str
    access_version: int
    keys: int
    def __init__(self, name: _Optional[str] = ..., settings: _Optional[_Union[TenantSettings, _Mapping]] = ..., created_at_ms: _Optional[int] = ..., author: _Optional[str] = ..., access_version: _Optional[int] = ..., keys: _Optional[int] = ...) -> None: ...

class ListTenantsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTenantsReply(_message.Message):
    __slots__ = ("tenants",)
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    tenants: _containers.RepeatedCompositeFieldContainer[TenantInfo]
    def __init__(self, tenants: _Optional[_Iterable[_Union[TenantInfo, _Mapping]]] = ...) -> None: ...

class ShowTenantRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class UpdateTenantRequest(_message.Message):
    __slots__ = ("name", "settings", "fields", "author")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    name: str
    settings: TenantSettings
    fields: _containers.RepeatedScalarFieldContainer[str]
    author: str
    def __init__(self, name: _Optional[str] = ..., settings: _Optional[_Union[TenantSettings, _Mapping]] = ..., fields: _Optional[_Iterable[str]] = ..., author: _Optional[str] = ...) -> None: ...

class ListBudgetsRequest(_message.Message):
    __slots__ = ("tenant", "public_id")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_ID_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    public_id: str
    def __init__(self, tenant: _Optional[str] = ..., public_id: _Optional[str] = ...) -> None: ...

class BudgetStanding(_message.Message):
    __slots__ = ("tenant", "public_id", "provider", "budget", "spent", "begins_at_ms", "resets_at_ms", "level", "unpriced")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_ID_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    SPENT_FIELD_NUMBER: _ClassVar[int]
    BEGINS_AT_MS_FIELD_NUMBER: _ClassVar[int]
    RESETS_AT_MS_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    UNPRICED_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    public_id: str
    provider: str
    budget: _types_pb2.Budget
    spent: str
    begins_at_ms: int
    resets_at_ms: int
    level: int
    unpriced: int
    def __init__(self, tenant: _Optional[str] = ..., public_id: _Optional[str] = ..., provider: _Optional[str] = ..., budget: _Optional[_Union[_types_pb2.Budget, _Mapping]] = ..., spent: _Optional[str] = ..., begins_at_ms: _Optional[int] = ..., resets_at_ms: _Optional[int] = ..., level: _Optional[int] = ..., unpriced: _Optional[int] = ...) -> None: ...

class ListBudgetsReply(_message.Message):
    __slots__ = ("budgets",)
    BUDGETS_FIELD_NUMBER: _ClassVar[int]
    budgets: _containers.RepeatedCompositeFieldContainer[BudgetStanding]
    def __init__(self, budgets: _Optional[_Iterable[_Union[BudgetStanding, _Mapping]]] = ...) -> None: ...
