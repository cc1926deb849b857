"""Whom alerts are told to: Slack-compatible hooks, PagerDuty (Events v2), and any receiver of plain JSON.

N4N_ALERT_WEBHOOKS holds them, comma separated: `slack=URL`, `pagerduty=ROUTING_KEY` or `pagerduty=ROUTING_KEY@URL`, `json=URL`. URLs and
keys are secrets: they are in no log and no error. What is told is kept in Postgres until each receiver took it, so a restart loses nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

import aiohttp
from yarl import URL

from n4n.core.alerts.rules import BY_NAME, Severity
from n4n.core.alerts.watch import Notice
from n4n.core.errors import StartFailed

PAGERDUTY = "https://events.pagerduty.com/v2/enqueue"
SEND_S = 10.0
_SEVERITIES = {Severity.PAGE: "critical", Severity.TICKET: "warning"}
_LINE = 500
_DEDUP = 255  # https://developer.pagerduty.com/docs/send-alert-event
Body = Mapping[str, object]


class Shape(StrEnum):
    """What a receiver understands."""

    SLACK = "slack"
    PAGERDUTY = "pagerduty"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Webhook:
    """One receiver. `name` may be told; the rest not."""

    shape: Shape
    url: str
    key: str = ""

    @property
    def name(self) -> str:
        """Tells receivers apart without telling who they are."""
        return f"{self.shape.value}-{hashlib.sha256(f'{self.url} {self.key}'.encode()).hexdigest()[:8]}"

    def __repr__(self) -> str:
        return f"Webhook({self.name})"

    def body(self, told: Body) -> Body:
        """What this receiver is sent of a notice."""
        match self.shape:
            case Shape.SLACK:
                return {"text": _escaped(_line(told))}
            case Shape.PAGERDUTY:
                return _event(told, self.key)
            case Shape.JSON:
                return told


def webhooks_of(setting: str) -> tuple[Webhook, ...]:
    """The receivers that a setting names, each once; StartFailed says which part cannot be read, by its place."""
    return tuple(dict.fromkeys(_webhook(part.strip(), place) for place, part in enumerate(setting.split(","), 1) if part.strip()))


def _webhook(part: str, place: int) -> Webhook:
    word, _, rest = part.partition("=")
    try:
        shape = Shape(word.strip())
    except ValueError:
        wanted = "slack=, pagerduty= or json=; a comma within a URL is %2C"
        raise StartFailed(f"N4N_ALERT_WEBHOOKS: part {place} must begin with {wanted}") from None
    key, url = "", rest
    if shape is Shape.PAGERDUTY:
        key, _, url = rest.partition("@")
        url = url or PAGERDUTY
    if not _is_url(url) or (shape is Shape.PAGERDUTY and not key):
        wanted = "pagerduty=ROUTING_KEY" if shape is Shape.PAGERDUTY else f"{shape.value}=https://…"
        raise StartFailed(f"N4N_ALERT_WEBHOOKS: part {place} must be {wanted}")
    return Webhook(shape, url, key)


def _is_url(text: str) -> bool:
    try:
        url = URL(text)
    except ValueError:
        return False
    return url.scheme in ("http", "https") and bool(url.host) and bool(url.port)


def told_of(notice: Notice, now: float) -> Body:
    """A notice as plain JSON: what is kept, and what a `json` receiver gets."""
    violation, rule = notice.violation, notice.rule
    return {
        "alert": rule.name,
        "status": "resolved" if notice.resolved else "firing",
        "severity": rule.severity.value,
        "labels": dict(violation.labels),
        "summary": violation.summary,
        "value": violation.value,
        "since": _iso(notice.since),
        "at": _iso(now),
        "key": violation.key,
        "runbook": rule.runbook,
    }


def _line(told: Body) -> str:
    word = "resolved" if told["status"] == "resolved" else str(told["severity"])
    return f"[{word}] {told['alert']}: {told['summary']} (since {told['since']})"[:_LINE]


def _escaped(text: str) -> str:
    """So that no name is taken for a link or for a call to everybody; https://api.slack.com/reference/surfaces/formatting#escaping."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _dedup(key: str) -> str:
    """At most 255 characters, and still another one for another trouble."""
    return key if len(key) <= _DEDUP else f"{key[: _DEDUP - 17]}#{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def _event(told: Body, key: str) -> Body:
    event: dict[str, object] = {
        "routing_key": key,
        "event_action": "resolve" if told["status"] == "resolved" else "trigger",
        "dedup_key": _dedup(str(told["key"])),
    }
    if told["status"] != "resolved":
        event["payload"] = {
            "summary": f"{told['alert']}: {told['summary']}"[:1024],
            "source": "n4n",
            "severity": _SEVERITIES[BY_NAME[str(told["alert"])].severity],
            "timestamp": told["at"],
            "custom_details": {"labels": told["labels"], "value": told["value"], "runbook": told["runbook"]},
        }
    return event


async def send(http: aiohttp.ClientSession, webhook: Webhook, told: Body) -> str:
    """Tells one receiver; '' when it took it, else why not, without its address."""
    try:
        timeout = aiohttp.ClientTimeout(total=SEND_S)
        async with http.post(webhook.url, json=webhook.body(told), timeout=timeout, allow_redirects=False) as answer:
            return "" if answer.status < 300 else f"it answered {answer.status}"
    except TimeoutError:
        return f"it did not answer within {SEND_S:g} s"
    except aiohttp.ClientError as error:
        return f"it cannot be reached ({type(error).__name__})"


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
