"""The ledger's lines: what a router writes of every dispatched attempt, and what a control plane reads of them.

    D[head…, estimate]        an attempt was dispatched: enough to close it as `unknown`, should nobody live to settle it
    S[head…, how it ended]    a settled row, complete in itself

A line is a letter, a JSON array and a newline. The head of both is the same text, rendered once. A value that a reader does not know
follows those it knows, and one that a writer did not know yet has a default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated

import msgspec

from n4n.core.pricing import usd
from n4n.core.usage import MISSING

DISPATCHED, SETTLED = b"D", b"S"
STATES = ("ok", "partial", "failed", "cancelled", "unknown")
UNKNOWN = "unknown"
RATIO = "ratio"  # counted_by: bytes of text and a ratio of bytes to tokens
_ID = slice(3, 31)  # of the attempt, in a line: D["att_…
_LONGEST = 4000  # characters of a name; far above what the catalog allows
_Text = Annotated[str, msgspec.Meta(max_length=_LONGEST)]
_Attempt = Annotated[str, msgspec.Meta(pattern=r"^att_[0-9a-f]{24}$")]
_Number = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
_Small = Annotated[int, msgspec.Meta(ge=0, lt=2**15)]
_Money = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,18}(\.[0-9]{1,12})?$")]  # USD, exact
_Ms = Annotated[float, msgspec.Meta(ge=0, lt=1e12)]
_Tags = Annotated[
    dict[Annotated[str, msgspec.Meta(max_length=256)], Annotated[str, msgspec.Meta(max_length=256)]], msgspec.Meta(max_length=32)
]
_Instant = Annotated[int, msgspec.Meta(ge=0, lt=4_102_444_800_000_000)]  # Unix µs, before the year 2100


class Head(msgspec.Struct, frozen=True, array_like=True):
    """What is known when an attempt is dispatched. `started_us`: Unix µs, and with the attempt's id the row's key."""

    attempt_id: _Attempt
    started_us: _Instant
    request_id: _Text
    attempt_no: _Small
    tenant: _Text
    key_id: _Text
    endpoint: _Text
    provider: _Text
    account: _Text
    model: _Text
    tier: _Text
    catalog_version: _Number
    stream: bool
    priority: _Text


class Dispatch(Head, frozen=True, array_like=True):
    """A `D` line. The estimate is that of the whole call; `price` is pico-USD per token of input and of output, None: unpriced."""

    prompt_tokens: _Number
    completion_tokens: _Number
    price: tuple[_Number, _Number] | None
    tags: _Tags = {}  # msgspec copies an empty one


class Row(Head, frozen=True, array_like=True):
    """An `S` line. `prompt_tokens` is all input, cached and written included, `completion_tokens` all output, reasoning included."""

    state: _Text
    error_class: _Text | None
    status: _Small | None  # the provider's; None: no answer came, or it is not known
    prompt_tokens: _Number
    cached_tokens: _Number
    cache_write_tokens: _Number
    completion_tokens: _Number
    reasoning_tokens: _Number
    counted_prompt_tokens: _Number | None
    counted_completion_tokens: _Number | None
    counted_by: _Text | None
    estimated: bool
    cost_usd: _Money | None  # None: unpriced
    latency_ms: _Ms | None
    ttft_ms: _Ms | None
    cache_write_1h_tokens: _Number = 0  # of `cache_write_tokens`
    service_tier: _Text = ""  # the answer's; '': the usual one
    doubt: _Text | None = None  # why the tokens are estimated, a word of n4n.core.usage.DOUBTS
    tags: _Tags = {}  # msgspec copies an empty one
    audio_input_tokens: _Number = 0  # of `prompt_tokens`, neither cached nor written
    audio_output_tokens: _Number = 0  # of `completion_tokens`
    image_input_tokens: _Number = 0
    image_output_tokens: _Number = 0
    revision: _Small = 0  # a row of a higher one takes the place of the same attempt's

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise ValueError("state is none")


_ROW, _DISPATCH = msgspec.json.Decoder(Row), msgspec.json.Decoder(Dispatch)
_ENCODE = msgspec.json.Encoder().encode


def attempt_of(line: bytes) -> bytes:
    """The attempt's id, of a line of either kind."""
    return line[_ID]


def whole_lines(content: bytes) -> bytes:
    """What of a segment can be read: up to the last newline before the part that was never written, which is all zeros."""
    written = content.find(b"\0")
    return content[: content.rfind(b"\n", 0, written if written >= 0 else len(content)) + 1]


def settled_lines(lines: bytes) -> bytes:
    """The settled rows among whole lines, which is all that a control plane wants."""
    return b"".join([line for line in lines.splitlines(keepends=True) if line.startswith(SETTLED)])


def read_rows(lines: bytes) -> tuple[list[Row], int]:
    """The settled rows, and how many lines are none: those of a broken disk must not hold up the others for ever."""
    rows: list[Row] = []
    refused = 0
    for line in lines.splitlines():
        try:
            row = _ROW.decode(line[1:])
        except (msgspec.DecodeError, UnicodeDecodeError):
            refused += 1
            continue
        if line.startswith(SETTLED) and b"\\u0000" not in line:  # Postgres keeps no NUL in a text
            rows.append(row)
        else:
            refused += 1
    return rows, refused


def still_open(before: Mapping[bytes, bytes], lines: bytes) -> dict[bytes, bytes]:
    """Fold over a log's segments, oldest first: the dispatch lines, by attempt, that nothing so far has settled."""
    after = dict(before)
    for line in lines.splitlines():
        if line.startswith(DISPATCHED):
            after[line[_ID]] = line
        else:
            after.pop(line[_ID], None)
    return after


def closed_as_unknown(dispatches: Iterable[bytes]) -> list[bytes]:
    """`S` lines, state `unknown`, for what a router that is gone had dispatched and not settled."""
    return [closed for line in dispatches if (closed := _unknown(line))]


def _unknown(line: bytes) -> bytes:
    """b'' for a line that cannot be read."""
    try:
        sent = _DISPATCH.decode(line[1:])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return b""
    prompt, completion = sent.prompt_tokens, sent.completion_tokens
    cost = None if sent.price is None else usd(prompt * sent.price[0] + completion * sent.price[1])
    head = tuple(getattr(sent, name) for name in Head.__struct_fields__)
    told = (*head, UNKNOWN, None, None, prompt, 0, 0, completion, 0, prompt, completion, RATIO, True, cost, None, None)
    told += (0, "", MISSING, sent.tags)
    return SETTLED + _ENCODE(told) + b"\n"
