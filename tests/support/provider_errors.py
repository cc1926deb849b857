"""What providers that speak like OpenAI answer when they fail, and what it means: one row per situation that is told apart.

From their documentation, SDK types and public threads, as of November 2026. Each row is a fact; bodies are as they come on the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from n4n.core.errors import FailureClass
from tests.support.script import Answer, Headers, Status, Whole, compact

RATE, QUOTA, OVERLOADED, TIMEOUT, SERVER = (
    FailureClass.RATE_LIMITED, FailureClass.QUOTA_EXHAUSTED, FailureClass.OVERLOADED, FailureClass.TIMEOUT, FailureClass.SERVER_ERROR,
)  # fmt: skip
AUTH, GONE, CONTEXT, POLICY, BAD = (
    FailureClass.AUTH, FailureClass.MODEL_NOT_FOUND, FailureClass.CONTEXT_LENGTH, FailureClass.CONTENT_POLICY, FailureClass.BAD_REQUEST,
)  # fmt: skip
PAGE = b"<!doctype html><html><head><title>Error 429 500</title></head><body><h1>cloudflare</h1></body></html>"


@dataclass(frozen=True, slots=True)
class ProviderError:
    """One answer with an error status, and the class it is of."""

    name: str
    status: int
    body: bytes
    means: FailureClass
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def answer(self) -> Answer:
        """The same as a script of the upstream."""
        kind = "text/html" if self.body.startswith(b"<") else "application/json"
        return (Status(self.status), Headers((("Content-Type", kind), *self.headers.items())), Whole(self.body))


def nested(
    status: int, means: FailureClass, who: str, message: str = "no", *, code: object = None, kind: str | None = None, **more: object
) -> ProviderError:
    """`{"error": {…}}`; `headers` and `metadata` among `more` are what they say."""
    headers = more.pop("headers", {})
    error = {"message": message, "type": kind, "param": None, "code": code, **more}
    return ProviderError(f"{who} {status} {code or kind or message}", status, compact({"error": error}), means, headers)  # type: ignore[arg-type, dict-item]


def flat(status: int, means: FailureClass, who: str, **members: object) -> ProviderError:
    """An error whose members stand at the top."""
    return ProviderError(f"{who} {status} {next(iter(members.values()), '')}", status, compact(members), means)  # type: ignore[arg-type]


def page(status: int, means: FailureClass) -> ProviderError:
    """A page of some box between us and the provider."""
    return ProviderError(f"page {status}", status, PAGE, means)


INVALID = "invalid_request_error"
OPENAI = (
    nested(400, BAD, "openai", "Invalid value", kind=INVALID),
    nested(400, CONTEXT, "openai", code="context_length_exceeded", kind=INVALID),
    nested(400, POLICY, "openai", code="content_policy_violation", kind=INVALID),
    nested(400, POLICY, "openai", code="cyber_policy", kind=INVALID),
    nested(400, POLICY, "openai", "Your request was rejected as a result of our safety system.", kind=INVALID),
    nested(400, BAD, "openai", code="unsupported_parameter", kind=INVALID),
    nested(400, BAD, "openai", code="unsupported_value", kind=INVALID),
    nested(400, BAD, "openai", "string too long", code="string_above_max_length", kind=INVALID),
    nested(400, BAD, "openai", code="invalid_encrypted_content", kind=INVALID),
    nested(401, AUTH, "openai", code="invalid_api_key", kind=INVALID),
    nested(401, AUTH, "openai", "Your IP is not authorized", code="ip_not_authorized"),
    nested(403, AUTH, "openai", code="unsupported_country_region_territory"),
    nested(404, GONE, "openai", code="model_not_found", kind=INVALID),
    nested(408, TIMEOUT, "openai"),
    nested(409, SERVER, "openai"),
    nested(413, BAD, "openai", "Payload too large", kind=INVALID),
    nested(429, RATE, "openai", code="rate_limit_exceeded", kind="tokens"),
    nested(429, RATE, "openai", code="rate_limit_exceeded", kind="requests"),
    nested(
        429, CONTEXT, "openai", "Request too large for m on tokens per min (TPM): Limit 30000, Requested 41221.",
        code="rate_limit_exceeded", kind="tokens",
    ),
    nested(429, RATE, "openai", code="slow_down"),
    nested(429, QUOTA, "openai", "You exceeded your current quota", code="insufficient_quota", kind="insufficient_quota"),
    nested(429, QUOTA, "openai", code="credit_balance_exhausted", kind="insufficient_quota"),
    nested(429, QUOTA, "openai", code="organization_spend_limit_exceeded"),
    nested(429, QUOTA, "openai", code="organization_usage_limit_exceeded"),
    nested(429, QUOTA, "openai", code="project_spend_limit_exceeded"),
    nested(500, SERVER, "openai", kind="server_error"),
    nested(503, OVERLOADED, "openai", kind="service_unavailable_error"),
    nested(503, OVERLOADED, "openai", code="server_is_overloaded"),
)  # fmt: skip
LIKES = (
    flat(422, BAD, "mistral", detail=[{"loc": ["body", "foo"], "msg": "Extra inputs are not permitted", "type": "extra_forbidden"}]),
    flat(429, RATE, "mistral", object="error", message="Rate limit exceeded", type="rate_limited", param=None, code="1300"),
    flat(429, OVERLOADED, "mistral", object="error", message="Service tier capacity exceeded for this model.", type=INVALID),
    flat(402, QUOTA, "mistral", message="payment required"),
    nested(402, QUOTA, "together", "You have reached your spend limit"),
    nested(403, CONTEXT, "together", "The input tokens plus max_tokens is above the model's maximum context length"),
    nested(429, RATE, "together", kind="dynamic_request_limited"),
    nested(429, RATE, "together", kind="dynamic_token_limited"),
    page(520, SERVER), page(522, SERVER), page(523, SERVER), page(524, TIMEOUT), page(529, OVERLOADED),
    nested(402, QUOTA, "deepinfra", "payment"),
    nested(403, QUOTA, "deepinfra", "Your balance is too low"),
    nested(429, OVERLOADED, "deepinfra", "Model busy, retry later"),
    nested(400, SERVER, "groq", code="json_validate_failed", kind=INVALID),
    nested(400, SERVER, "groq", code="tool_use_failed", kind=INVALID),
    nested(
        413, CONTEXT, "groq", "Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested 9000",
        code="rate_limit_exceeded", kind="tokens",
    ),
    nested(429, QUOTA, "groq", code="rate_limit_exceeded", kind="requests", headers={"retry-after": "20000"}),
    nested(429, RATE, "groq", code="rate_limit_exceeded", kind="tokens", headers={"retry-after": "60"}),
    nested(498, OVERLOADED, "groq", code="capacity_exceeded"),
    nested(402, QUOTA, "fireworks", "add credits"),
    nested(412, AUTH, "fireworks", "account suspended"),
    nested(404, GONE, "fireworks", "Model not found, inaccessible, and/or not deployed"),
    nested(429, RATE, "fireworks", "slow"),
    nested(503, OVERLOADED, "fireworks", "busy"),
    nested(
        402, RATE, "openrouter", code=402, metadata={"limit_source": "openrouter_in_flight_budget"}, headers={"retry-after": "60"}
    ),
    nested(402, QUOTA, "openrouter", "Insufficient credits", code=402),
    nested(402, QUOTA, "openrouter", code="weight_exceeds_budget"),
    nested(403, POLICY, "openrouter", "flagged", code=403, metadata={"flagged_input": "text", "reasons": ["violence"]}),
    nested(403, QUOTA, "openrouter", "Key limit exceeded", code=403, metadata={"resets_at": "2026-12-01T00:00:00Z"}),
    nested(408, TIMEOUT, "openrouter", code=408),
    nested(502, SERVER, "openrouter", "Provider returned error", code=502),
    nested(503, GONE, "openrouter", "No allowed providers are available for the selected model.", code=503),
    nested(503, OVERLOADED, "openrouter", "busy", code=503, metadata={"error_type": "provider_overloaded"}),
    flat(400, CONTEXT, "vllm", object="error", message="This model's maximum context length is 4096.", type="BadRequestError", code=400),
    nested(400, CONTEXT, "vllm", "max_tokens must be at least 1, got -20.", code=400, kind="BadRequestError"),
    flat(404, GONE, "vllm", object="error", message="The model `x` does not exist.", type="NotFoundError", code=404),
    flat(503, OVERLOADED, "vllm", detail="starting"),
    nested(402, QUOTA, "deepseek", "Insufficient Balance", code="invalid_request_error"),
    flat(429, QUOTA, "xai", code="Some resource has been exhausted", error="Your team has either used all available credits or more"),
    flat(403, QUOTA, "xai", code="personal-team-blocked:spending-limit", error="no more"),
    flat(403, POLICY, "xai", code="denied", error="Content violates usage guidelines. Team: x"),
    flat(503, BAD, "xai", code="unavailable", error="Grammar is too complex"),
    nested(500, RATE, "a proxy", "wrapped", code=429),
)  # fmt: skip
TRANSPORT = (
    page(401, AUTH), page(403, AUTH), page(404, GONE), page(413, BAD), page(429, RATE), page(500, SERVER), page(502, SERVER),
    page(503, OVERLOADED), page(504, TIMEOUT),
    ProviderError("empty 503", 503, b"", OVERLOADED), ProviderError("empty 500", 500, b"", SERVER),
    ProviderError("empty 429", 429, b"", RATE),
    ProviderError("redirect", 302, b"", SERVER, {"location": "http://127.0.0.1:1/"}),
    ProviderError("a number in the text is no evidence", 400, compact({"error": {"message": "invalid: 'say 429 or 500'"}}), BAD),
    ProviderError("plain text", 400, b"upstream says no", BAD),
    ProviderError("cut JSON", 503, b'{"error": {"mess', OVERLOADED),
)  # fmt: skip
ERRORS = (*OPENAI, *LIKES, *TRANSPORT)
