"""Fixtures that every folder of tests may use."""

import atexit
import os
import resource
import shutil
import tempfile

import hypothesis

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # before grpc is imported: children would crash before exec
if "PYTEST_XDIST_WORKER" in os.environ or "PROMETHEUS_MULTIPROC_DIR" not in os.environ:  # one each, before prometheus_client is imported
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = tempfile.mkdtemp(prefix="n4n-metrics-")
    atexit.register(shutil.rmtree, os.environ["PROMETHEUS_MULTIPROC_DIR"], ignore_errors=True)

hypothesis.settings.register_profile("n4n", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.register_profile("quick", hypothesis.settings.get_profile("n4n"), max_examples=25)  # make check
hypothesis.settings.load_profile("n4n")  # how fast this machine is today is no reason to fail

_soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (_hard, _hard))  # an ordinary shell allows 1,024 open files

pytest_plugins = ["tests.support.stores"]
