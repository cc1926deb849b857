"""What probers found, as it is kept in Redis."""

from __future__ import annotations

from n4n.core.probes.findings import Finding, Kind, decoded, encoded, name_of


def test_a_finding_is_read_as_it_was_written_and_strangers_are_passed_over() -> None:
    finding = Finding(Kind.CHECK_FAILED, "endpoint e", "no", "node-1", 1, 2, "json_object", 0.5)

    assert decoded(encoded(finding)) == finding
    assert finding.name == name_of(Kind.CHECK_FAILED, "endpoint e", "json_object") == "check_failed endpoint e json_object"
    assert name_of(Kind.GONE, "endpoint e") == "gone endpoint e"
    assert decoded(b"{}") is None
