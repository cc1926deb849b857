"""Fixtures that every folder of tests may use."""

import os
import tempfile

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # before grpc is imported: children would crash before exec
os.environ.setdefault("PROMETHEUS_MULTIPROC_DIR", tempfile.mkdtemp(prefix="n4n-metrics-"))  # before prometheus_client is imported

pytest_plugins = ["tests.support.stores"]
