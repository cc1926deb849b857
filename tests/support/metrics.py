"""What a /metrics page says, as values by name and labels."""

from __future__ import annotations

from collections.abc import Mapping

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

Series = tuple[str, frozenset[tuple[str, str]]]


class Page:
    """One scrape. `minus` another one: what came since."""

    def __init__(self, values: Mapping[Series, float]) -> None:
        self.values = dict(values)

    def __repr__(self) -> str:
        return "\n".join(f"{name}{dict(labels)} {value:g}" for (name, labels), value in sorted(self.values.items(), key=repr) if value)

    def minus(self, before: Page) -> Page:
        """What has changed since, but for what went away."""
        return Page({series: value - before.values.get(series, 0.0) for series, value in self.values.items()})

    def __call__(self, name: str, **labels: str) -> float:
        """The sum of all series of this name with these labels, and perhaps others; no label given as '' is told at all."""
        wanted = {(label, value) for label, value in labels.items() if value}
        absent = {label for label, value in labels.items() if not value}
        return sum(
            value
            for (found, told), value in self.values.items()
            if found == name and wanted <= told and not any(label in absent and text for label, text in told)
        )

    def names(self) -> set[str]:
        """Of all series."""
        return {name for name, _ in self.values}


def read(text: str) -> Page:
    """A page in Prometheus' text format."""
    return Page(
        {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
    )


async def scraped(http: aiohttp.ClientSession, port: int) -> Page:
    """What a process of this machine tells now."""
    async with http.get(f"http://127.0.0.1:{port}/metrics") as answer:
        assert answer.status == 200
        return read(await answer.text())
