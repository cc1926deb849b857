"""Why an operator's call is refused: a code, one line that names field and remedy, and perhaps the problems found."""

from __future__ import annotations

from collections.abc import Sequence

from n4n.core.errors import Problem

_LINE = 300  # characters of the one-line message; all problems travel beside it


class Refused(Exception):
    """The call cannot be done as asked; nothing was changed."""

    code = "invalid_request"

    def __init__(self, message: str, *, problems: Sequence[Problem] = (), head_version: int = 0) -> None:
        self.message = " ".join(message.split())
        self.problems = tuple(problems)
        self.head_version = head_version
        super().__init__(self.message)


class InvalidRequest(Refused):
    """A field of the call itself is wrong."""


class InvalidCatalog(Refused):
    """The document has problems."""

    code = "invalid_catalog"

    def __init__(self, problems: Sequence[Problem]) -> None:
        first = str(problems[0])
        rest = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(f"the catalog is not valid: {first[:_LINE]}{rest}", problems=problems)


class Shrinks(Refused):
    """The version would remove more than a slip should be able to."""

    code = "shrink"

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(map(str, problems))[:_LINE], problems=problems)


class VersionConflict(Refused):
    """Somebody else changed the catalog since the version the caller expects."""

    code = "version_conflict"


class NotFound(Refused):
    """There is nothing of that name or number."""

    code = "not_found"


class AlreadyRevoked(Refused):
    """The key is revoked for good."""

    code = "revoked"


class Unauthenticated(Refused):
    """No token, or one that nobody has."""

    code = "unauthenticated"


class Forbidden(Refused):
    """A token that may not do this."""

    code = "permission_denied"


class LabelTaken(Refused):
    """There is a rating of that name."""

    code = "label_taken"
