"""Who this process is to AWS, found by botocore: environment, shared files, roles, single sign-on, container, instance.

Imported only where an account needs it, for it is large. What it asks the network for (the role's token service, the machine's
metadata server) goes by botocore's own clients and the proxies of its own configuration.
"""

from __future__ import annotations

import botocore.session
from botocore.credentials import Credentials, RefreshableCredentials
from botocore.exceptions import BotoCoreError, ClientError

from n4n.core.dialects.bedrock.identity import AccessKey, Profile, read_identity
from n4n.runtime.aws_keys import Keyless, Renewing

_NONE = "it names no credential, and AWS finds none here: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or use a role"
_LAST_S = 30  # before its end a key that cannot be renewed is not used


class Source:
    """The keys of a profile, or of whoever the process is. Blocks while it looks."""

    def __init__(self, identity: Renewing) -> None:
        self._profile = identity.name if isinstance(identity, Profile) else None
        self._credentials: Credentials | None = None
        self._key = ""

    def key(self) -> str:
        """The key that is valid now as text, renewed if that is due. Keyless says why there is none, in words that may be shown."""
        try:
            if not isinstance(self._credentials, RefreshableCredentials):  # files and environment are looked at anew each time
                self._credentials = botocore.session.Session(profile=self._profile).get_credentials()
            frozen = None if self._credentials is None else self._credentials.get_frozen_credentials()
        except (BotoCoreError, ClientError) as error:
            if self._still_valid():
                return self._key
            raise Keyless(f"AWS gives no key ({type(error).__name__})") from error
        if frozen is None:
            raise Keyless(_NONE if self._profile is None else f"the AWS profile {self._profile} has no credentials")
        self._key = ":".join(part for part in (frozen.access_key, frozen.secret_key, frozen.token) if part)
        if not isinstance(read_identity(self._key), AccessKey):
            raise Keyless("AWS gives a key of no known form")
        return self._key

    def _still_valid(self) -> bool:
        known = self._credentials
        return bool(self._key) and isinstance(known, RefreshableCredentials) and not known.refresh_needed(refresh_in=_LAST_S)
