"""Tags: read, bounded, a request's own over its key's."""

from __future__ import annotations

import json

import pytest

from n4n.core.errors import MalformedRequest
from n4n.core.tags import BadTag, of_request, parse, tags_of


def test_pairs_are_read_in_any_order_and_blanks_around_them_are_none() -> None:
    assert parse(" team = search , env=prod") == parse("env=prod,team=search") == (("env", "prod"), ("team", "search"))
    assert parse("") == parse("  ") == ()


def test_a_requests_own_tags_lie_over_those_of_its_key() -> None:
    key = (("env", "prod"), ("team", "search"))

    assert json.loads(of_request(key, "team=ads,run=7")) == {"env": "prod", "run": "7", "team": "ads"}
    assert json.loads(of_request(key, None)) == {"env": "prod", "team": "search"}
    assert of_request((), None) == of_request((), "") == b""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("team", "name=value pairs"),
        ("team=search,", "name=value pairs"),
        ("=search", "a tag's name must be"),
        ("te am=search", "a tag's name must be"),
        ("x" * 65 + "=1", "a tag's name must be"),
        ("team=", "the value of the tag team"),
        ("team=" + "x" * 65, "the value of the tag team"),
        ("team=a=b", "the value of the tag team"),
        ("team=a\x7f", "the value of the tag team"),
        ("team=a,team=b", "given twice"),
        (",".join(f"t{n}=1" for n in range(9)), "there may be 8 tags, not 9"),
    ],
)
def test_what_is_no_tag_is_refused(text: str, told: str) -> None:
    with pytest.raises(BadTag, match=told):
        parse(text)
    with pytest.raises(MalformedRequest) as refused:
        of_request((), text)
    assert refused.value.param == "x-n4n-tags"


def test_key_and_request_together_are_bounded_too() -> None:
    key = tags_of({f"k{n}": "1" for n in range(5)})

    assert len(json.loads(of_request(key, "a=1,b=1,c=1"))) == 8
    with pytest.raises(MalformedRequest, match="8 tags, not 9"):
        of_request(key, "a=1,b=1,c=1,d=1")
