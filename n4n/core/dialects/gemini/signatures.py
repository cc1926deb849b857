"""Signatures of Gemini's thoughts in a chat: `reasoning_details` of format google-gemini-v1, out of an answer and back into a request.

https://ai.google.dev/gemini-api/docs/thought-signatures: opaque, each belongs to the part it came with, and newer models refuse a
call of a function without its own. Details of other formats are another provider's and are passed over.
"""

from __future__ import annotations

from collections.abc import Mapping

from n4n.core import json_bytes

FORMAT = "google-gemini-v1"
Object = dict[str, object]


def of_call(signature: str, call_id: str, index: int) -> Object:
    """What a signature on a function call becomes."""
    return {"type": "reasoning.encrypted", "data": signature, "id": call_id, "format": FORMAT, "index": index}


def of_text(signature: str, index: int) -> Object:
    """What a signature on a text becomes."""
    return {"type": "reasoning.encrypted", "data": signature, "format": FORMAT, "index": index}


def of_thought(text: str, signature: str, index: int) -> Object:
    """What a signed thought becomes."""
    return {"type": "reasoning.text", "text": text, "signature": signature, "format": FORMAT, "index": index}


class Signatures:
    """The signatures that came back with one message of the assistant."""

    __slots__ = ("_by_call", "_loose", "thoughts")

    def __init__(self, details: list[Mapping[str, object]]) -> None:
        self._by_call: dict[str, str] = {}
        self._loose: str | None = None
        self.thoughts: list[bytes] = []  # signed thoughts, as parts
        for detail in details:
            signature, name, text = detail.get("data"), detail.get("id"), detail.get("text")
            signed = detail.get("signature")
            if detail.get("type") == "reasoning.text" and isinstance(text, str) and isinstance(signed, str) and signed:
                self.thoughts.append(json_bytes.dump({"text": text, "thought": True, "thoughtSignature": signed}))
            elif detail.get("type") == "reasoning.encrypted" and isinstance(signature, str) and signature:
                if isinstance(name, str):
                    self._by_call[name] = signature
                else:
                    self._loose = signature

    def of_call(self, call_id: str) -> str | None:
        """The signature that this call came with."""
        return self._by_call.get(call_id)

    def signed(self, texts: list[bytes]) -> list[bytes]:
        """Text parts, the last one with the signature that belongs to a text, if one came back."""
        if self._loose is None:
            return texts
        *before, last = texts or [b'{"text":""}']
        return [*before, b'%b,"thoughtSignature":%b}' % (last[:-1], json_bytes.dump(self._loose))]


def signatures_of(raw: bytes) -> Signatures:
    """The signatures in a message's `reasoning_details`; what is not of our format or in no shape we know does not count."""
    read = json_bytes.parse(raw) if len(raw) else None
    details = read if isinstance(read, list) else []
    return Signatures([detail for detail in details if isinstance(detail, dict) and detail.get("format") == FORMAT])
