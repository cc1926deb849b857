"""What errors of the Responses API mean: as an answer's status, inside a response that failed, or as an event of a stream.

The codes of a response that failed are its own (https://platform.openai.com/docs/api-reference/responses/object, `error`); the
rest is as everywhere at OpenAI.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from n4n.core.dialects import classify
from n4n.core.dialects.classify import Told
from n4n.core.errors import Failure

_ABOUT_THE_REQUEST = frozenset(
    ("invalid_prompt", "invalid_image", "invalid_image_format", "invalid_base64_image", "invalid_image_url", "image_too_large",
     "image_too_small", "image_parse_error", "invalid_image_mode", "image_file_too_large", "unsupported_image_media_type",
     "empty_image_file", "failed_to_download_image", "image_file_not_found", "data_residency_mismatch", "vector_store_not_found")
)  # fmt: skip
_POLICY = "content_policy_violation"


def failure_of(status: int, headers: Mapping[str, str], body: bytes, now: float) -> Failure:
    """The failure that an answer with an error status is."""
    return classify.failure_of(status, headers, body, now, read=read_error)


def failure_inside(said: object) -> Failure:
    """The failure that a body with status 200, or an event, tells."""
    return classify.failure_inside(read_error(said) or Told())


def read_error(said: object) -> Told | None:
    """The error in a parsed body or event: `response.error`, `error`, or flat in an event of type `error`; None: there is none."""
    if not isinstance(said, Mapping):
        return classify.read_error(said)
    response = said.get("response")
    if isinstance(response, Mapping) and response.get("error"):
        said = response
    elif said.get("type") == "error" and not said.get("error"):
        said = {"error": {name: said.get(name) for name in ("message", "code", "param")}}
    elif not said.get("error") and ("output" in said or response is not None):
        return None
    told = classify.read_error(said)
    return told if told is None else _weighed(told)


def _weighed(told: Told) -> Told:
    """With the code or type that the classes know."""
    code = told.code or ""
    if code == "image_content_policy_violation" or (code == "invalid_prompt" and _flagged(told.message)):
        return replace(told, code=_POLICY)
    if code in _ABOUT_THE_REQUEST:
        return replace(told, kind="invalid_request_error")
    if code == "vector_store_timeout":
        return replace(told, code="timeout")
    return told


def _flagged(message: str) -> bool:
    text = message.lower()
    return "policy" in text or "flagged" in text or "safety" in text
