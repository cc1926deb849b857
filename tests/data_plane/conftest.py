"""The router's metrics need a folder before prometheus_client is imported."""

import os
import tempfile

os.environ.setdefault("PROMETHEUS_MULTIPROC_DIR", tempfile.mkdtemp(prefix="n4n-metrics-"))
