"""What a client may read of a provider's error: our own words, or the provider's with everything private taken out."""

from __future__ import annotations

import re
from dataclasses import replace

from n4n.core.errors import Failure, FailureClass

MAX_MESSAGE = 500
OWN_WORDS: dict[FailureClass, str] = {
    FailureClass.RATE_LIMITED: "the provider's rate limit is reached",
    FailureClass.QUOTA_EXHAUSTED: "the provider has no quota left for this account",
    FailureClass.OVERLOADED: "the provider is overloaded",
    FailureClass.TIMEOUT: "the provider did not answer in time",
    FailureClass.SERVER_ERROR: "the provider failed",
    FailureClass.AUTH: "the provider refused the gateway's credential",
    FailureClass.MODEL_NOT_FOUND: "the provider does not offer this model",
    FailureClass.CONTEXT_LENGTH: "the request is longer than the model's context window",
    FailureClass.CONTENT_POLICY: "the provider's content policy refused the request",
    FailureClass.BAD_REQUEST: "the provider refused the request as invalid",
}
ABOUT_THE_REQUEST = frozenset(
    (FailureClass.BAD_REQUEST, FailureClass.CONTEXT_LENGTH, FailureClass.CONTENT_POLICY)
)  # told in the provider's words
_PRIVATE = re.compile(
    r"""
      <[^<>]{0,1000}>                                                # HTML
    | \b[a-z][a-z0-9+.-]{0,20}://\S+                                 # a URL
    | \b(?:[a-z0-9-]{1,63}\.){1,6}(?:com|net|org|ai|io|dev|cloud|app|co|xyz)\b(?::\d+)?(?:/\S*)?     # a host
    | \bbearer\s+\S+
    | \b(?:sk|pk|rk|gsk|xai|fw|org|proj)[-_][A-Za-z0-9_*.…-]{4,}      # keys, and whose they are
    | \b(?:req|user|acct|key)[-_](?=[A-Za-z0-9_-]*\d)[A-Za-z0-9_*-]{4,}
    | \b(?:AIza|AKIA)[A-Za-z0-9_-]{8,}
    | [A-Za-z0-9*]{2,}\*{3,}[A-Za-z0-9*]*                            # a masked key
    | \barn:\S+
    | \b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+                    # an address
    | \b[A-Za-z0-9_-]{32,}\b                                         # anything long and opaque
    """,
    re.IGNORECASE | re.VERBOSE,
)
_OWNER = re.compile(r"\b(in|for|of)\s+(organi[sz]ation|project|account|team)\s+(?:\[…\]|(?-i:[A-Z])\S*|['\"`]\S+)", re.IGNORECASE)
_BETWEEN, _LEAST_SECRET = re.compile(r'[\s:",{}]+'), 6  # a credential may be a pair, or JSON; what is shorter is no secret
_SPACE = re.compile(r"[\s\x00-\x1f\x7f-\x9f\ud800-\udfff]+")


def cleaned(text: str) -> str:
    """A provider's message in one line of at most 500 characters, without markup, URLs, hosts, keys, ids of organisations or requests."""
    text = _PRIVATE.sub("[…]", text[: MAX_MESSAGE * 8])
    text = _OWNER.sub(r"\1 the \2", text)
    text = _SPACE.sub(" ", text).strip()
    if not text.replace("[…]", "").strip(" .,:;"):
        return ""
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"


def without_secret(failure: Failure, secret: str | None) -> Failure:
    """The same without the credential that was sent, nor a part of it: one that looks like none is not seen by `cleaned`."""
    if not secret:
        return failure
    parts = [part for part in (secret, *_BETWEEN.split(secret)) if len(part) >= _LEAST_SECRET]
    said = (failure.message, failure.code, failure.param)
    if not any(part in text for text in said if text for part in parts):
        return failure
    message, code, param = (None if text is None else _struck(text, parts) for text in said)
    return replace(failure, message=message or "[…]", code=code, param=param)


def _struck(text: str, parts: list[str]) -> str:
    for part in parts:
        text = text.replace(part, "[…]")
    return text
