"""What Bedrock's errors mean, as an answer's status, as a frame of a stream, or inside a 200.

The name of an error stands in a header, in the body's `__type`, or in a frame's headers; the body holds little but a message
(https://docs.aws.amazon.com/bedrock/latest/APIReference/CommonErrors.html and the errors of Converse). Whatever bears no name of
Bedrock's comes from something in between and is read as everybody's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from n4n.core import json_bytes
from n4n.core.dialects import classify
from n4n.core.dialects.wording import ABOUT_THE_REQUEST, OWN_WORDS, cleaned
from n4n.core.errors import Failure, FailureClass
from n4n.core.quota_headers import explicit_hint_s

_C = FailureClass
_BY_NAME: dict[str, FailureClass] = {
    name: failure_class
    for failure_class, names in {
        _C.BAD_REQUEST: "ValidationException MalformedInputException SerializationException InvalidParameterException",
        _C.QUOTA_EXHAUSTED: "ServiceQuotaExceededException LimitExceededException",
        _C.RATE_LIMITED: "ThrottlingException Throttling ThrottledException TooManyRequestsException RequestThrottled",
        _C.OVERLOADED: "ModelNotReadyException ServiceUnavailableException ServiceUnavailable overloaded_error",
        _C.SERVER_ERROR: "InternalServerException InternalFailure InternalServerError ModelErrorException ModelStreamErrorException "
        "ConflictException DependencyFailedException",
        _C.TIMEOUT: "ModelTimeoutException RequestTimeout RequestTimeoutException",
        _C.MODEL_NOT_FOUND: "ResourceNotFoundException UnknownOperationException",
        _C.AUTH: "AccessDeniedException AccessDenied ExpiredTokenException ExpiredToken UnrecognizedClientException "
        "InvalidClientTokenId IncompleteSignature IncompleteSignatureException InvalidSignatureException SignatureDoesNotMatch "
        "MissingAuthenticationToken MissingAuthenticationTokenException OptInRequired NotAuthorized RequestExpired ForbiddenException",
    }.items()
    for name in names.split()
}
# Texts, lower-cased, that tell more than a name does.
_SIGNS: dict[FailureClass, tuple[tuple[FailureClass, tuple[str, ...]], ...]] = {
    _C.BAD_REQUEST: (
        (_C.CONTEXT_LENGTH, (
            "input is too long", "prompt is too long", "too long for", "too many tokens", "too many input tokens", "expected maxlength",
            "maximum number of tokens", "maximum number of input tokens", "context length", "context window", "context limit",
            "too many total text bytes",
            "input length and `max_tokens` exceed", "input length and max_tokens exceed", "maximum input length",
        )),
        (_C.MODEL_NOT_FOUND, (
            "model identifier is invalid", "on-demand throughput", "end of its life", "end of life", "inference profile that contains",
            "model is not supported in this region", "model is not available in",
        )),
        (_C.AUTH, ("security token", "signature expired", "signature not yet current")),
        (_C.CONTENT_POLICY, ("content filtering policy", "content filter", "content policy", "responsible ai")),
    ),
    _C.RATE_LIMITED: ((_C.QUOTA_EXHAUSTED, ("per day", "daily")),),
    _C.AUTH: ((_C.MODEL_NOT_FOUND, (
        "access to the model", "model access", "model with the specified model id", "model is not available", "access to this model",
    )),),
    _C.SERVER_ERROR: (),
}  # fmt: skip
_BY_ORIGINAL_STATUS: dict[int, FailureClass] = {
    400: _C.BAD_REQUEST, 413: _C.BAD_REQUEST, 422: _C.BAD_REQUEST, 408: _C.TIMEOUT, 504: _C.TIMEOUT, 429: _C.RATE_LIMITED,
    503: _C.OVERLOADED, 529: _C.OVERLOADED,
}  # fmt: skip


def failure_of(status: int, headers: Mapping[str, str], body: bytes, now: float) -> Failure:
    """The failure that an answer with an error status is."""
    said = _parsed(body)
    name = _bare(headers.get("x-amzn-errortype") or _text(said.get("__type") or said.get("code")))
    if name not in _BY_NAME:
        failure = classify.failure_of(status, headers, body, now)
        return failure if not name or failure.code else _named(failure, name)
    return _failure(name, said, status, explicit_hint_s(headers, body, now))


def failure_in_stream(kind: str, name: str, payload: bytes, message: str) -> Failure:
    """The failure that a frame of kind `exception` or `error` is."""
    said = _parsed(payload)
    if message:
        said.setdefault("message", message)
    name = _bare(name)
    return _failure(name[:1].upper() + name[1:] if kind == "exception" else name, said, 200, None)


def failure_inside(said: object) -> Failure | None:
    """The failure that a whole body with status 200 tells of; None: it tells of none."""
    if isinstance(said, dict) and _bare(_text(said.get("__type"))) in _BY_NAME:
        return _failure(_bare(_text(said["__type"])), cast(dict[str, object], said), 200, None)
    if isinstance(said, dict) and "Message" in said:
        said = {"message": said["Message"], **said}
    told = classify.read_error(said)
    return None if told is None else classify.failure_inside(told)


def _failure(name: str, said: Mapping[str, object], status: int, hint: float | None) -> Failure:
    message = _text(said.get("message") or said.get("Message"))
    original = said.get("originalStatusCode")
    failure_class = _BY_NAME.get(name, _C.SERVER_ERROR)
    if type(original) is int and name.startswith("Model"):
        failure_class = _BY_ORIGINAL_STATUS.get(original, failure_class)
        message = _text(said.get("originalMessage")) or message
    lower = message.lower()
    for found, signs in _SIGNS.get(failure_class, ()):
        if any(sign in lower for sign in signs):
            failure_class = found
            break
    about_request = failure_class in ABOUT_THE_REQUEST
    shown = (cleaned(message) if about_request else "") or OWN_WORDS[failure_class]
    return Failure(failure_class, shown, status, name[:100] or None, hint)


def _named(failure: Failure, name: str) -> Failure:
    return Failure(
        failure.failure_class, failure.message, failure.status, cleaned(name)[:100] or None, failure.retry_after_s, failure.param,
        failure.repeatable,
    )  # fmt: skip


def _parsed(body: bytes) -> dict[str, object]:
    try:
        said = json_bytes.parse(body)
    except json_bytes.NotJson:
        return {}
    return dict(said) if isinstance(said, dict) else {}


def _bare(name: str) -> str:
    """A name without the namespace before and the address after it: `com.amazon.coral#ThrottlingException:http://…`."""
    return name.partition(":")[0].rpartition("#")[2].strip()[:200]


def _text(value: object) -> str:
    return value[:4000] if isinstance(value, str) else ""
