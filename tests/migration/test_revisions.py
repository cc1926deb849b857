"""Every revision can be brought to the newest with rows in place, and the newest is what the code believes."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.pool import NullPool

import migrations
from control_plane.repository import Repository
from control_plane.schema import DatabaseAway, engine_url, migrate
from control_plane.tables import metadata
from n4n.core.errors import StartFailed

# Rows that may be written when a revision is the newest. Never changed afterwards: databases out there hold such rows.
ROWS: dict[str, tuple[str, ...]] = {
    "0001": (
        "INSERT INTO catalog_versions "
        "(version, author, committed_at, message, checksum, document, endpoint_states, changes, endpoints) VALUES "
        "(1, 'ann', now(), 'first', 'c1', '{\"providers\":{},\"accounts\":{},\"models\":{},\"endpoints\":{},\"tiers\":{}}', '{}', '[]', 0)",
        "UPDATE heads SET version = 1, committed_at = now() WHERE collection = 'catalog'",
    ),
    "0002": (
        "INSERT INTO tenants (name, author, created_at) VALUES ('acme', 'ann', now())",
        "INSERT INTO keys "
        "(public_id, tenant, secret_sha256, limits, budget_usd, budget_window, directives, require_directives, models, author, "
        "created_at, access_version) VALUES ('abcdefghijkl', 'acme', decode(repeat('ab', 32), 'hex'), '{\"rpm\": 5}', 12.5, 'day', "
        "'{region=eu}', '{}', '{}', 'ann', now(), 1)",
        "INSERT INTO access_versions (version, author, committed_at, change) VALUES (1, 'ann', now(), 'create abcdefghijkl for acme')",
        "UPDATE heads SET version = 1, committed_at = now() WHERE collection = 'access'",
    ),
    "0003": (
        "INSERT INTO nodes (node, role, build, applied_version, access_version, last_seen, last_nack) VALUES "
        "('router-1', 'data-plane', '0.1.0', 1, 1, now(), '')",
    ),
    "0004": (),
    "0005": (
        "CREATE TABLE usage_ledger_20261130 PARTITION OF usage_ledger FOR VALUES FROM ('2026-11-30 00:00+00') TO ('2026-12-01 00:00+00')",
        "INSERT INTO usage_ledger (started_at, attempt_id, request_id, attempt_no, tenant, key_id, endpoint, provider, "
        "account, model, tier, "
        "catalog_version, state, stream, priority, prompt_tokens, cached_tokens, cache_write_tokens, cache_write_1h_tokens, "
        "completion_tokens, reasoning_tokens, estimated, cost_usd) VALUES ('2026-11-30 12:00+00', 'att_1', 'req_1', 1, 'acme', "
        "'abcdefghijkl', 'e', 'p', 'a', 'm', '', 1, 'ok', "
        "false, 'interactive', 10, 0, 0, 0, 5, 0, false, 0.5)",
        "INSERT INTO usage_by_day VALUES ('2026-11-30', 'acme', 'abcdefghijkl', 'm', 'p', 'e', 1, 1, 0, 0, 0, 0, 10, 0, 0, 5, "
        "0, 0, 0, 0.5)",
        "INSERT INTO usage_by_hour VALUES ('2026-11-30 12:00+00', 'e', 'p', 'm', 1, 1, 0, 0, 0, 0, 10, 0, 0, 5, 0, 0, 0, 0.5)",
    ),
    "0006": (
        'UPDATE keys SET budgets = \'[{"usd": "5", "window": "day", "since_ms": 7}]\'',
        'UPDATE tenants SET budgets = \'[{"tokens": 9, "window": "30d", "soft": true, "since_ms": 7}]\', access_version = 1',
        "INSERT INTO budget_alerts VALUES ('acme', '', '', 'usd/day', now(), 50, now())",
    ),
    "0007": (
        "UPDATE tenants SET limits = '{\"rpm\": 9}', priority = 'background'",
        "UPDATE keys SET priority = 'best_effort'",
    ),
    "0008": (
        "INSERT INTO audit (at, author, source, action, kind, name, before, after) VALUES (now(), 'ann', 'ipv4:127.0.0.1:1', 'create', "
        "'key', 'abcdefghijkl', NULL, '{\"tenant\": \"acme\"}')",
    ),
    "0009": (
        "INSERT INTO usage_ratings VALUES ('november-2', now(), now(), 'ann', now(), 'a file', 1, 0, 0, 0.5, 0.25)",
        "INSERT INTO usage_rerated VALUES ('november-2', now(), 'att_000000000000000000000001', 0.25)",
        "INSERT INTO usage_rerated_by_day VALUES (now(), 'november-2', 'acme', 'k', 'm', 'p', 'e', "
        + ", ".join("0" for _ in range(13))
        + ", 0.25)",
    ),
    "0010": (
        'UPDATE keys SET require_pricing = true, tags = \'{"team": "search"}\'',
        "UPDATE usage_ledger SET tags = '{\"team\": \"search\"}', doubt = 'missing', service_tier = 'flex', revision = 1",
    ),
    "0011": (
        "INSERT INTO traffic_by_minute VALUES ('2026-11-30 12:00+00', 'p', 'm', 'e', 1, 1, 0, 0, '{\"34\": 1}', '{}')",
        "INSERT INTO requests_by_minute VALUES ('2026-11-30 12:00+00', 1, 0, 0, 0, 0)",
        "INSERT INTO sla_by_hour VALUES ('2026-11-30 12:00+00', 'p', 'm', 'eu', 1, 0, 800, 800, 800, NULL, NULL, NULL, 25)",
        'INSERT INTO vitals VALUES (\'r1\', now(), \'{"node": "r1", "run": "1"}\')',
        "INSERT INTO alerts VALUES ('N4nStoreAway/node=r1', 'N4nStoreAway', '{\"node\": \"r1\"}', 0, now(), now(), true)",
        "INSERT INTO alert_notices (at, due, told, pending) VALUES (now(), now(), '{}', '[]')",
    ),
    "0012": ("INSERT INTO sla_late_hours (hour) VALUES ('2026-11-30 12:00+00')",),
    "0013": ("UPDATE catalog_versions SET traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'",),
    "0014": (
        "INSERT INTO alert_deliveries (notice, receiver, key, due) VALUES (1, 'json-0a1b2c3d', 'N4nStoreAway/node=r1', now())",
        "UPDATE traffic_by_minute SET reported_input = 105, counted_input = 100",
    ),
    "0015": (),
    "0016": ("UPDATE tenants SET capture_content = true",),
}


def _revisions() -> list[str]:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.set_main_option("path_separator", "os")
    return [script.revision for script in reversed(list(ScriptDirectory.from_config(config).walk_revisions()))]


def _run(url: str, *statements: str) -> None:
    engine = create_engine(engine_url(url), poolclass=NullPool)
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement.replace(":", r"\:")))
    engine.dispose()


def _rows(connection: Connection) -> dict[str, list[tuple[object, ...]]]:
    return {table.name: [tuple(row) for row in connection.execute(table.select())] for table in metadata.sorted_tables}


def test_every_revision_has_rows_to_travel_with() -> None:
    assert list(ROWS) == _revisions()


@pytest.mark.parametrize("revision", _revisions())
def test_rows_written_at_a_revision_are_there_and_readable_at_the_newest(revision: str, postgres_url: str) -> None:
    written = _revisions()[: _revisions().index(revision) + 1]
    assert migrate(postgres_url, to=revision) == revision
    _run(postgres_url, *(statement for name in written for statement in ROWS[name]))

    assert migrate(postgres_url) == _revisions()[-1]

    async def read() -> None:
        repository = Repository(postgres_url)
        version = await repository.catalog()
        assert (version.info.version, version.info.author, version.content.document["endpoints"]) == (1, "ann", {})
        if "0002" in written:
            (key,) = (await repository.access()).keys
            assert (key.public_id, key.settings.limits, key.settings.directives) == ("abcdefghijkl", {"rpm": 5}, ("region=eu",))
            if "0006" not in written:  # the one budget of old is kept from now on
                assert [(one.name, one.amount, one.soft) for one in key.settings.budgets] == [("usd/day", 12_500_000_000_000, False)]
                assert key.settings.budgets[0].since_ms > 1_700_000_000_000
        if "0003" in written:
            assert [node.node for node in await repository.known_nodes(datetime.now(UTC))] == ["router-1"]
        await repository.close()

    asyncio.run(read())


def test_the_newest_revision_is_what_the_tables_say(postgres_url: str) -> None:
    migrate(postgres_url)
    engine = create_engine(engine_url(postgres_url), poolclass=NullPool)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, metadata) == []
        assert {name: len(rows) for name, rows in _rows(connection).items() if rows} == {"heads": 2}
    engine.dispose()


def test_programs_that_migrate_at_once_do_not_collide(postgres_url: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: migrate(postgres_url), range(4))) == {_revisions()[-1]}


def test_a_database_of_a_newer_n4n_is_refused_in_one_line(postgres_url: str) -> None:
    migrate(postgres_url)
    _run(postgres_url, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StartFailed, match=r"revision 9999, which n4n .* does not know; start a newer n4n") as refused:
        migrate(postgres_url)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "N4N_DATABASE_URL is empty"),
        ("nonsense", "N4N_DATABASE_URL must be postgresql://"),
        ("mysql://u:secret@h/d", "must begin with postgresql://, not mysql://"),
        ("postgresql://u:secret@127.0.0.1:1/d", "cannot be reached"),
    ],
)
def test_what_cannot_be_a_database_is_one_line_without_the_password(url: str, said: str) -> None:
    with pytest.raises(StartFailed, match=said) as refused:
        migrate(url)
    assert "secret" not in str(refused.value) and "\n" not in str(refused.value)
    assert isinstance(refused.value, DatabaseAway) == ("127.0.0.1" in url)
