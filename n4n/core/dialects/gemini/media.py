"""Content parts of a message as Gemini's parts: texts as the bytes they were, images, sounds and files inline or by their address.

https://ai.google.dev/gemini-api/docs/file-input-methods. Base64 is never decoded; it goes out as it came.
"""

from __future__ import annotations

import base64
import re
from urllib.parse import unquote_to_bytes

import msgspec

from n4n.core import json_bytes
from n4n.core.errors import MalformedRequest, Untellable

_DATA = re.compile(rb"data:([a-z0-9.+-]{1,100}/[a-z0-9.+-]{1,100})?((?:;[a-z0-9_.+=-]{1,100}){0,4}),", re.IGNORECASE)
_LONGEST_HEAD = 700  # of a data URI: all before its comma
_ESCAPE = re.compile(rb"\\")
_ADDRESS = re.compile(r"(?:https?|gs)://[^\s]{1,8000}\Z", re.IGNORECASE)
_ENDING = re.compile(r"\.([a-z0-9]{2,5})\Z", re.IGNORECASE)
_KINDS = {
    "png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "webp": "image/webp", "gif": "image/gif", "heic": "image/heic",
    "heif": "image/heif", "bmp": "image/bmp", "pdf": "application/pdf", "txt": "text/plain", "md": "text/markdown", "csv": "text/csv",
    "html": "text/html", "json": "application/json", "xml": "text/xml", "wav": "audio/wav", "mp3": "audio/mp3", "mp4": "video/mp4",
}  # fmt: skip
_SOUNDS = ("wav", "mp3", "aiff", "aac", "ogg", "flac")
_NOTHING = msgspec.Raw(b"")


class Part(msgspec.Struct):
    """One part as the client wrote it; what it holds stays raw JSON, empty: nothing."""

    type: str = "text"
    text: msgspec.Raw = _NOTHING
    refusal: msgspec.Raw = _NOTHING
    image_url: msgspec.Raw = _NOTHING
    input_audio: msgspec.Raw = _NOTHING
    file: msgspec.Raw = _NOTHING
    cache_control: msgspec.Raw = _NOTHING


class _Image(msgspec.Struct):
    url: msgspec.Raw = _NOTHING
    detail: str | None = None


class _Sound(msgspec.Struct):
    data: msgspec.Raw = _NOTHING
    format: str = ""


class _File(msgspec.Struct):
    file_data: msgspec.Raw = _NOTHING
    file_id: str | None = None
    filename: str | None = None


_IMAGE = msgspec.json.Decoder(_Image)
_SOUND = msgspec.json.Decoder(_Sound)
_FILE = msgspec.json.Decoder(_File)


def text_part(raw: bytes, where: str) -> bytes | None:
    """A text as it was written, in a part; None: it is empty, and Vertex refuses empty texts."""
    if bytes(memoryview(raw)[:1]) != b'"':
        raise MalformedRequest(f"{where} must be a text", param="messages")
    return None if len(raw) == 2 else b'{"text":%b}' % raw


def made(part: Part, where: str, warnings: list[str]) -> bytes | None:
    """One part, `where` for messages about it; None: nothing is left of it. MalformedRequest: no provider could read it."""
    try:
        match part.type:
            case "text" | "input_text" | "output_text":
                return text_part(part.text, f"{where}.text")
            case "refusal":
                return text_part(part.refusal, f"{where}.refusal")
            case "image_url":
                return _image(part.image_url, where, warnings)
            case "input_audio":
                return _sound(_SOUND.decode(part.input_audio), where)
            case "file":
                return _file(_FILE.decode(part.file), where, warnings)
    except msgspec.DecodeError as error:
        raise MalformedRequest(f"{where}.{part.type} cannot be read: {error}", param="messages") from error
    raise Untellable(f"{where}: Gemini has no part of type {part.type[:40]!r}", param="messages")


def _image(raw: msgspec.Raw, where: str, warnings: list[str]) -> bytes:
    image = _Image(url=raw) if bytes(memoryview(raw)[:1]) == b'"' else _IMAGE.decode(raw)
    if image.detail not in (None, "auto"):
        warnings.append("detail was left out: Gemini chooses an image's resolution itself")
    return _addressed(image.url, f"{where}.image_url.url", "image/jpeg", warnings)


def _sound(sound: _Sound, where: str) -> bytes:
    if sound.format not in _SOUNDS or not _is_text(sound.data):
        raise MalformedRequest(f"{where}.input_audio must hold data in base64 and a format ({', '.join(_SOUNDS)})", param="messages")
    return _inline(f"audio/{sound.format}".encode(), memoryview(sound.data)[1:-1])


def _file(file: _File, where: str, warnings: list[str]) -> bytes:
    name = file.filename or ""
    if _is_text(file.file_data) and b":" not in bytes(memoryview(file.file_data)[:10]):  # bare base64
        return _inline(_kind(name, "application/pdf", where, warnings), memoryview(file.file_data)[1:-1])
    if len(file.file_data):
        return _addressed(file.file_data, f"{where}.file.file_data", "application/pdf", warnings)
    if file.file_id and _ADDRESS.match(file.file_id):
        return _by_address(file.file_id, _kind(file.file_id, "application/pdf", where, warnings))
    raise Untellable(f"{where}: a file_id is known only to the provider that gave it out; send file_data", param="messages")


def _addressed(url: msgspec.Raw, where: str, otherwise: str, warnings: list[str]) -> bytes:
    """What is at a URL: a data URI inline, an address that Gemini can fetch from as a file."""
    plain = _is_text(url) and not _ESCAPE.search(memoryview(url))
    text = memoryview(url)[1:-1] if plain else memoryview(_text(url).encode(errors="replace"))
    head = _DATA.match(text[:_LONGEST_HEAD])
    if head is None:
        address = bytes(text).decode(errors="replace")
        if not _ADDRESS.match(address):
            raise MalformedRequest(f"{where} must be a data URI, or an http, https or gs address", param="messages")
        return _by_address(address, _kind(address, otherwise, where, warnings))
    kind, value = head[1] or b"text/plain", text[head.end() :]
    if not head[2].lower().endswith(b";base64"):
        return _inline(kind, base64.b64encode(unquote_to_bytes(bytes(value))))
    return _inline(kind, value if plain else json_bytes.dump(bytes(value).decode(errors="replace"))[1:-1])


def _is_text(raw: bytes) -> bool:
    return len(raw) > 2 and bytes(memoryview(raw)[:1]) == b'"'


def _text(raw: bytes) -> str:
    read = json_bytes.parse(raw) if len(raw) else None
    return read if isinstance(read, str) else ""


def _kind(name: str, otherwise: str, where: str, warnings: list[str]) -> bytes:
    """The media type that a name ends in; the API wants one with every file."""
    ending = _ENDING.search(re.split(r"[?#]", name, maxsplit=1)[0])
    known = _KINDS.get(ending[1].lower()) if ending else None
    if known is None:
        warnings.append(f"{where} was taken to be {otherwise}: its name does not tell")
    return (known or otherwise).encode()


def _inline(kind: bytes, data: bytes | memoryview) -> bytes:
    """`data`: the inside of a JSON string."""
    return b"".join((b'{"inlineData":{"mimeType":"', kind.lower(), b'","data":"', data, b'"}}'))


def _by_address(address: str, kind: bytes) -> bytes:
    return json_bytes.dump({"fileData": {"mimeType": kind.decode(), "fileUri": address}})
