"""Images, documents and sounds of a chat as blocks of Converse: bytes in base64, never an address.

Converse fetches nothing but from S3, and that with the rights of our own account, which a client must not borrow: an address of any
kind is left out. https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ImageBlock.html, …_DocumentBlock.html.
"""

from __future__ import annotations

import re
from base64 import b64encode
from urllib.parse import unquote_to_bytes

from n4n.core import json_bytes
from n4n.core.dialects.bedrock.notes import Notes
from n4n.core.dialects.bedrock.words import File, Image, Sound

_DATA = re.compile(r"data:([\w.+-]{1,100}/[\w.+-]{1,100})?((?:;[\w.+-]{1,100}=[^;,]{0,100}){0,4})(;base64)?,", re.IGNORECASE)
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]{0,20}://", re.IGNORECASE)
_IMAGES = {"image/png": "png", "image/jpeg": "jpeg", "image/jpg": "jpeg", "image/gif": "gif", "image/webp": "webp"}
_DOCUMENTS = {
    "application/pdf": "pdf", "text/csv": "csv", "application/msword": "doc", "application/vnd.ms-excel": "xls", "text/html": "html",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx", "text/plain": "txt", "text/markdown": "md",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
}  # fmt: skip
_ENDINGS = frozenset(_DOCUMENTS.values())
_SOUNDS = frozenset(("mp3", "opus", "wav", "aac", "flac", "ogg", "m4a", "mpeg", "pcm", "webm"))
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9\-()\[\]]+")


class Media:
    """The media of one request; its documents get names that differ, or they are refused."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._names: set[str] = set()

    def image(self, image: Image | str, path: str) -> bytes | None:
        """A block; None: it cannot be told."""
        url = image if isinstance(image, str) else image.url
        if not isinstance(image, str) and image.detail not in (None, "auto"):
            self._notes.left_out(f"{path}.image_url.detail")
        found = self._inline(url, path, "an image")
        if found is None:
            return None
        kind, inner = found
        if kind not in _IMAGES:
            self._notes.left_out(path, f"takes no image of type {kind[:60] or 'that is not told'}")
            return None
        return b'{"image":{"format":"%b","source":{"bytes":%b}}}' % (_IMAGES[kind].encode(), json_bytes.dump(inner))

    def document(self, file: File, path: str) -> bytes | None:
        """A block; None: it cannot be told."""
        if file.file_data is None:
            self._notes.left_out(path, "knows no file by an id that another provider gave out; send file_data")
            return None
        found = self._inline(file.file_data, path, "a document")
        if found is None:
            return None
        kind, inner = found
        stem, _, ending = (file.filename or "").rpartition(".")
        form = _DOCUMENTS.get(kind) or ("pdf" if not ending and not kind else ending.lower())
        if form not in _ENDINGS:
            self._notes.left_out(path, f"takes no document of type {(kind or ending)[:60]}")
            return None
        return json_bytes.dump({"document": {"format": form, "name": self._name(stem), "source": {"bytes": inner}}})

    def sound(self, sound: Sound, path: str) -> bytes | None:
        """A block; None: it cannot be told."""
        if sound.format not in _SOUNDS:
            self._notes.left_out(path, f"takes no audio of type {sound.format[:20]}")
            return None
        return json_bytes.dump({"audio": {"format": sound.format, "source": {"bytes": sound.data}}})

    def _inline(self, url: str, path: str, what: str) -> tuple[str, str] | None:
        """Media type (empty: not told) and base64 of a data URI, or of bare base64."""
        found = _DATA.match(url)
        if found is None:
            if _ADDRESS.match(url):
                self._notes.left_out(path, f"takes no {what.removeprefix('a ').removeprefix('an ')} by its address; send it as a data URI")
                return None
            return "", url
        inner = url[found.end() :]
        return (found[1] or "").lower(), inner if found[3] else b64encode(unquote_to_bytes(inner)).decode()

    def _name(self, stem: str) -> str:
        """Letters, digits, hyphens, brackets, single blanks; a model may take a name for an instruction, so no more than 60."""
        plain = " ".join(_NOT_IN_NAMES.sub(" ", stem[:60]).split()) or "document"
        name, count = plain, 1
        while name in self._names:
            count += 1
            name = f"{plain} {count}"
        self._names.add(name)
        return name
