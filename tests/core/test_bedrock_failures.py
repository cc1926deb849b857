"""What Bedrock's errors mean, and what credentials and schemas are to it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from n4n.core.catalog import Endpoint, EndpointId, ModelId, Provider
from n4n.core.dialects.bedrock import Bedrock
from n4n.core.dialects.bedrock.identity import AccessKey, Ambient, ApiKey, Identity, Profile, Unreadable, read_identity, region_of
from n4n.core.dialects.bedrock.schema import closed
from n4n.core.errors import Failure, FailureClass

C = FailureClass
BEDROCK = Bedrock()


def failure(status: int, name: str | None, body: Any = "", **headers: str) -> Failure:
    told = {"x-amzn-errortype": name} if name else {}
    raw = body if isinstance(body, bytes) else json.dumps({"message": body} if isinstance(body, str) else body).encode()
    return BEDROCK.failure(status, {**told, **{key.replace("_", "-"): value for key, value in headers.items()}}, raw, 1000.0)


@pytest.mark.parametrize(
    ("status", "name", "message", "failure_class"),
    [
        (400, "ValidationException", "1 validation error detected: Value at 'toolUseId' failed", C.BAD_REQUEST),
        (400, "ValidationException", "Input is too long for requested model.", C.CONTEXT_LENGTH),
        (
            400,
            "ValidationException",
            "The model returned the following errors: prompt is too long: 209353 tokens > 200000 maximum",
            C.CONTEXT_LENGTH,
        ),
        (400, "ValidationException", "Too many input tokens. Max input tokens: 8192", C.CONTEXT_LENGTH),
        (400, "ValidationException", "expected maxLength: 50000, actual: 54218, please reformat", C.CONTEXT_LENGTH),
        (400, "ValidationException", "The maximum tokens you requested exceeds the model limit of 4096", C.BAD_REQUEST),
        (400, "ValidationException", "The provided model identifier is invalid.", C.MODEL_NOT_FOUND),
        (400, "ValidationException", "Invocation of model ID x with on-demand throughput isn’t supported.", C.MODEL_NOT_FOUND),
        (400, "ValidationException", "Output blocked by content filtering policy", C.CONTENT_POLICY),
        (400, "ServiceQuotaExceededException", "", C.QUOTA_EXHAUSTED),
        (403, "AccessDeniedException", "User: arn:aws:iam::1:user/x is not authorized to perform: bedrock:InvokeModel", C.AUTH),
        (403, "AccessDeniedException", "You don't have access to the model with the specified model ID.", C.MODEL_NOT_FOUND),
        (403, "UnrecognizedClientException", "The security token included in the request is invalid.", C.AUTH),
        (403, "ExpiredTokenException", "", C.AUTH),
        (403, "InvalidSignatureException", "Signature expired: 20300101T000000Z is now earlier than", C.AUTH),
        (400, "IncompleteSignature", "", C.AUTH),
        (404, "ResourceNotFoundException", "Model use case details have not been submitted for this account.", C.MODEL_NOT_FOUND),
        (404, "UnknownOperationException", "", C.MODEL_NOT_FOUND),
        (408, "ModelTimeoutException", "", C.TIMEOUT),
        (424, "ModelErrorException", "", C.SERVER_ERROR),
        (429, "ThrottlingException", "Too many tokens, please wait before trying again.", C.RATE_LIMITED),
        (429, "ThrottlingException", "Too many tokens per day, please wait before trying again.", C.QUOTA_EXHAUSTED),
        (429, "ModelNotReadyException", "", C.OVERLOADED),
        (500, "InternalServerException", "", C.SERVER_ERROR),
        (503, "ServiceUnavailableException", "", C.OVERLOADED),
        (529, "overloaded_error", "Overloaded", C.OVERLOADED),
        (529, None, "Overloaded", C.OVERLOADED),
        (500, "SomethingNewException", "", C.SERVER_ERROR),
        (403, None, "", C.AUTH),
        (413, None, b"<html>", C.BAD_REQUEST),
        (502, None, b"<html>", C.SERVER_ERROR),
    ],
)
def test_an_error_is_read_by_its_name_and_then_by_its_words(
    status: int, name: str | None, message: Any, failure_class: FailureClass
) -> None:
    got = failure(status, name, message)

    assert (got.failure_class, got.status) == (failure_class, status)
    assert got.code == name
    assert "arn:" not in got.message and "<" not in got.message


@pytest.mark.parametrize(
    ("said", "failure_class"),
    [
        ({"originalStatusCode": 429}, C.RATE_LIMITED),
        ({"originalStatusCode": 400, "originalMessage": "prompt is too long: 9"}, C.CONTEXT_LENGTH),
        ({"originalStatusCode": 400, "message": "bad"}, C.BAD_REQUEST),
        ({"originalStatusCode": 503}, C.OVERLOADED),
        ({"originalStatusCode": 504}, C.TIMEOUT),
        ({"originalStatusCode": 500}, C.SERVER_ERROR),
        ({"originalStatusCode": "x"}, C.SERVER_ERROR),
    ],
)
def test_a_models_own_error_is_read_by_its_own_status(said: dict[str, Any], failure_class: FailureClass) -> None:
    assert failure(424, "ModelErrorException", said).failure_class is failure_class


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("ThrottlingException:http://internal.amazon.com/coral/com.amazon.bedrock/", {"message": "m"}),
        ("com.amazon.coral.availability#ThrottlingException", {"Message": "m"}),
        (None, {"__type": "com.amazon#ThrottlingException", "Message": "m"}),
        (None, {"code": "ThrottlingException"}),
    ],
)
def test_a_name_is_found_wherever_it_stands(name: str | None, body: Any) -> None:
    got = failure(429, name, body, retry_after="3")

    assert (got.failure_class, got.code, got.retry_after_s) == (C.RATE_LIMITED, "ThrottlingException", 3.0)
    assert got.message == "the provider's rate limit is reached"


def test_what_is_about_the_request_is_told_in_the_providers_words_without_what_is_private() -> None:
    got = failure(400, "ValidationException", "Bad field in arn:aws:bedrock:eu-west-1:123456789012:x/y")

    assert got.message == "Bad field in […]"


# ── who we are


@pytest.mark.parametrize(
    ("secret", "identity"),
    [
        (None, Ambient()),
        ("", Ambient()),
        ("ABSKQmVkcm9ja0FQSUtleQ==", ApiKey("ABSKQmVkcm9ja0FQSUtleQ==")),
        ("bedrock-api-key-YmVkcm9jay5h", ApiKey("bedrock-api-key-YmVkcm9jay5h")),
        ("AKIAIOSFODNN7EXAMPLE:wJalrXUtnFEMI/K7MDENG", AccessKey("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG")),
        ("ASIAIOSFODNN7EXAMPLE:wJalrXUtnFEMI/K7MDENG:IQo+/=", AccessKey("ASIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG", "IQo+/=")),
        ("profile:team a", Profile("team a")),
        ("profile:", ApiKey("profile:")),
        ('{"Version": 1, "AccessKeyId": "A", "SecretAccessKey": "S", "SessionToken": "T"}', AccessKey("A", "S", "T")),
        ('{"AccessKeyId": "A", "SecretAccessKey": "S"}', AccessKey("A", "S")),
    ],
)
def test_a_credential_is_read_for_what_it_is(secret: str | None, identity: Identity) -> None:
    assert read_identity(secret) == identity


@pytest.mark.parametrize("secret", ['{"AccessKeyId": "A"}', "{", '{"AccessKeyId": 1, "SecretAccessKey": "S"}', "{\ud83d"])
def test_json_that_is_no_access_key_is_said_to_be_none(secret: str) -> None:
    got = read_identity(secret)

    assert isinstance(got, Unreadable) and "AccessKeyId" in got.why


def test_no_secret_shows() -> None:
    assert repr(ApiKey("s")) == "ApiKey()"
    assert repr(AccessKey("k", "s", "t")) == "AccessKey()"


@pytest.mark.parametrize(
    ("url", "region", "expected"),
    [
        ("https://bedrock-runtime.us-east-1.amazonaws.com", "us", "us-east-1"),
        ("https://bedrock-runtime-fips.us-gov-west-1.amazonaws.com", "", "us-gov-west-1"),
        ("https://bedrock-runtime.cn-north-1.amazonaws.com.cn", "", "cn-north-1"),
        ("https://vpce-0a1b-c2d3.bedrock-runtime.eu-central-1.vpce.amazonaws.com", "eu", "eu-central-1"),
        ("https://BEDROCK-RUNTIME.AP-SOUTHEAST-2.api.aws", "", "ap-southeast-2"),
        ("https://proxy.test/bedrock-runtime.us-east-1.x", "eu-west-1", "eu-west-1"),
        ("http://127.0.0.1:9", "eu", ""),
        ("http://127.0.0.1:9", "", ""),
    ],
)
def test_the_region_is_read_of_the_address(url: str, region: str, expected: str) -> None:
    assert region_of(url, region) == expected
    endpoint = Endpoint(EndpointId("e"), ModelId("m"), Provider("p", "bedrock", url), (), "u", region)
    assert endpoint.region == region


# ── schemas


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (True, True),
        ({"type": "string", "maxLength": 3}, {"type": "string", "description": "maxLength: 3"}),
        ({"type": "string", "description": "d", "minLength": 1}, {"type": "string", "description": "d (minLength: 1)"}),
        (
            {"type": "array", "items": {"type": "object"}, "minItems": 1},
            {"type": "array", "items": {"type": "object", "additionalProperties": False}, "minItems": 1},
        ),
        ({"type": "array", "minItems": 4}, {"type": "array", "description": "minItems: 4"}),
        ({"type": ["object", "null"], "additionalProperties": True}, {"type": ["object", "null"], "additionalProperties": False}),
        (
            {"oneOf": [{"properties": {}}, {"type": "null"}]},
            {"anyOf": [{"properties": {}, "additionalProperties": False}, {"type": "null"}]},
        ),
        ({"oneOf": [{}], "anyOf": [{}], "allOf": 7}, {"oneOf": [{}], "anyOf": [{}], "allOf": 7}),
        (
            {"$defs": {"a": {"type": "integer", "minimum": 1}}, "$ref": "#/$defs/a"},
            {"$defs": {"a": {"type": "integer", "description": "minimum: 1"}}, "$ref": "#/$defs/a"},
        ),
    ],
)
def test_a_schema_is_closed_and_what_it_cannot_hold_is_told(schema: object, expected: object) -> None:
    assert closed(schema) == expected


def test_a_schema_is_followed_to_a_bounded_depth() -> None:
    schema: dict[str, Any] = {}
    for _ in range(200):
        schema = {"type": "object", "properties": {"a": schema}}

    assert json.dumps(closed(schema)).count("additionalProperties") == 65
