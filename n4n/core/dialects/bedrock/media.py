"""Images, documents and sounds of a chat as blocks of Converse: bytes in base64, never an address.

Converse fetches nothing but from S3, and that with the rights of our own account, which a client must not borrow: an address of any
kind is refused, as is what else cannot be told: an answer without it would be to another question.
https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ImageBlock.html, …_DocumentBlock.html.
Base64 goes out as the bytes it came as; it is copied once.
"""

from __future__ import annotations

import re
from base64 import b64encode
from urllib.parse import unquote_to_bytes

import msgspec

from n4n.core import json_bytes
from n4n.core.dialects.bedrock.notes import Notes
from n4n.core.dialects.bedrock.words import File, Image, Sound, decoded

_DATA = re.compile(rb"data:([\w.+-]{1,100}/[\w.+-]{1,100})?((?:;[\w.+-]{1,100}=[^;,]{0,100}){0,4})(;base64)?,", re.IGNORECASE)
_ADDRESS = re.compile(rb"[a-z][a-z0-9+.-]{0,20}://", re.IGNORECASE)
_ESCAPED = re.compile(rb"\\")
_IMAGES = {"image/png": "png", "image/jpeg": "jpeg", "image/jpg": "jpeg", "image/gif": "gif", "image/webp": "webp"}
_DOCUMENTS = {
    "application/pdf": "pdf", "text/csv": "csv", "application/msword": "doc", "application/vnd.ms-excel": "xls", "text/html": "html",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx", "text/plain": "txt", "text/markdown": "md",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
}  # fmt: skip
_ENDINGS = frozenset(_DOCUMENTS.values())
_SOUNDS = frozenset(("mp3", "opus", "wav", "aac", "flac", "ogg", "m4a", "mpeg", "pcm", "webm"))
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9\-()\[\]]+")
_IMAGE = msgspec.json.Decoder(Image)
_TEXT = msgspec.json.Decoder(str)
_NULL = b"null"


class Media:
    """The media of one request; its documents get names that differ, or they are refused. Raises MalformedRequest and Untellable."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._names: set[str] = set()

    def image(self, raw: msgspec.Raw, path: str) -> bytes:
        """A block."""
        image = Image(raw) if bytes(memoryview(raw)[:1]) == b'"' else decoded(raw, _IMAGE, f"{path}.image_url")
        if image.detail not in (None, "auto"):
            self._notes.left_out(f"{path}.image_url.detail")
        kind, inner = self._inline(image.url, f"{path}.image_url.url", path, "image")
        if kind not in _IMAGES:
            raise self._notes.untellable(path, f"takes no image of type {kind[:60] or 'that is not told'}")
        return b"".join((b'{"image":{"format":"', _IMAGES[kind].encode(), b'","source":{"bytes":"', inner, b'"}}}'))

    def document(self, file: File, path: str) -> bytes:
        """A block."""
        if bytes(memoryview(file.file_data)[:4]) == _NULL:
            raise self._notes.untellable(path, "knows no file by an id that another provider gave out; send file_data")
        kind, inner = self._inline(file.file_data, f"{path}.file.file_data", path, "document")
        stem, _, ending = (file.filename or "").rpartition(".")
        form = _DOCUMENTS.get(kind) or ("pdf" if not ending and not kind else ending.lower())
        if form not in _ENDINGS:
            raise self._notes.untellable(path, f"takes no document of type {(kind or ending)[:60]}")
        told = b'{"document":{"format":"%b","name":"%b","source":{"bytes":"' % (form.encode(), self._name(stem).encode())
        return b"".join((told, inner, b'"}}}'))

    def sound(self, sound: Sound, path: str) -> bytes:
        """A block."""
        if sound.format not in _SOUNDS:
            raise self._notes.untellable(path, f"takes no audio of type {sound.format[:20]}")
        inner = _text(sound.data, f"{path}.input_audio.data")
        return b"".join((b'{"audio":{"format":"', sound.format.encode(), b'","source":{"bytes":"', inner, b'"}}}'))

    def _inline(self, raw: msgspec.Raw, field: str, path: str, what: str) -> tuple[str, memoryview | bytes]:
        """Media type (empty: not told) and base64 of a data URI, or of bare base64."""
        text = _text(raw, field)
        found = _DATA.match(text)
        if found is None:
            if _ADDRESS.match(text):
                raise self._notes.untellable(path, f"takes no {what} by its address; send it as a data URI")
            return "", text
        inner = text[found.end() :]
        return (found[1] or b"").decode().lower(), inner if found[3] else b64encode(unquote_to_bytes(bytes(inner)))

    def _name(self, stem: str) -> str:
        """Letters, digits, hyphens, brackets, single blanks; a model may take a name for an instruction, so no more than 60."""
        plain = " ".join(_NOT_IN_NAMES.sub(" ", stem[:60]).split()) or "document"
        name, count = plain, 1
        while name in self._names:
            count += 1
            name = f"{plain} {count}"
        self._names.add(name)
        return name


def _text(raw: msgspec.Raw, field: str) -> memoryview | bytes:
    """The inside of a text that can be put between quotes again as it is."""
    view = memoryview(raw)
    if bytes(view[:1]) == b'"' and _ESCAPED.search(view) is None:
        return view[1:-1]
    return json_bytes.dump(decoded(raw, _TEXT, field))[1:-1]
