from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PushType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HTTP_ENDPOINT: _ClassVar[PushType]
    MATTERMOST: _ClassVar[PushType]
HTTP_ENDPOINT: PushType
MATTERMOST: PushType

class ActivateSubscriptionRequest(_message.Message):
    __slots__ = ("subscription",)
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    subscription: Subscription
    def __init__(self, subscription: _Optional[_Union[Subscription, _Mapping]] = ...) -> None: ...

class ActivateSubscriptionResponse(_message.Message):
    __slots__ = ("message",)
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    message: str
    def __init__(self, message: _Optional[str] = ...) -> None: ...

class DeactivateSubscriptionRequest(_message.Message):
    __slots__ = ("full_name",)
    FULL_NAME_FIELD_NUMBER: _ClassVar[int]
    full_name: str
    def __init__(self, full_name: _Optional[str] = ...) -> None: ...

class DeactivateSubscriptionResponse(_message.Message):
    __slots__ = ("message",)
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    message: str
    def __init__(self, message: _Optional[str] = ...) -> None: ...

class SubscriptionStatusRequest(_message.Message):
    __slots__ = ("full_name",)
    FULL_NAME_FIELD_NUMBER: _ClassVar[int]
    full_name: str
    def __init__(self, full_name: _Optional[str] = ...) -> None: ...

class SubscriptionStatusResponse(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: str
    def __init__(self, status: _Optional[str] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Subscription(_message.Message):
    __slots__ = ("full_name", "full_topic", "push_config")
    FULL_NAME_FIELD_NUMBER: _ClassVar[int]
    FULL_TOPIC_FIELD_NUMBER: _ClassVar[int]
    PUSH_CONFIG_FIELD_NUMBER: _ClassVar[int]
    full_name: str
    full_topic: str
    push_config: PushConfig
    def __init__(self, full_name: _Optional[str] = ..., full_topic: _Optional[str] = ..., push_config: _Optional[_Union[PushConfig, _Mapping]] = ...) -> None: ...

class PushConfig(_message.Message):
    __slots__ = ("push_endpoint", "retry_policy", "max_messages", "authorization_header", "type", "mattermost_url", "mattermost_username", "mattermost_channel", "base_64_decode")
    PUSH_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    RETRY_POLICY_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    AUTHORIZATION_HEADER_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    MATTERMOST_URL_FIELD_NUMBER: _ClassVar[int]
    MATTERMOST_USERNAME_FIELD_NUMBER: _ClassVar[int]
    MATTERMOST_CHANNEL_FIELD_NUMBER: _ClassVar[int]
    BASE_64_DECODE_FIELD_NUMBER: _ClassVar[int]
    push_endpoint: str
    retry_policy: RetryPolicy
    max_messages: int
    authorization_header: str
    type: PushType
    mattermost_url: str
    mattermost_username: str
    mattermost_channel: str
    base_64_decode: bool
    def __init__(self, push_endpoint: _Optional[str] = ..., retry_policy: _Optional[_Union[RetryPolicy, _Mapping]] = ..., max_messages: _Optional[int] = ..., authorization_header: _Optional[str] = ..., type: _Optional[_Union[PushType, str]] = ..., mattermost_url: _Optional[str] = ..., mattermost_username: _Optional[str] = ..., mattermost_channel: _Optional[str] = ..., base_64_decode: _Optional[bool] = ...) -> None: ...

class RetryPolicy(_message.Message):
    __slots__ = ("type", "period")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    type: str
    period: int
    def __init__(self, type: _Optional[str] = ..., period: _Optional[int] = ...) -> None: ...
