"""A receiver of traces that keeps nothing: `python -m bench.span_sink PORT` takes them by gRPC, as a collector does."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import grpc


def main(port: int) -> None:
    """Serves until it is ended."""
    server = grpc.server(ThreadPoolExecutor(1))
    took = grpc.unary_unary_rpc_method_handler(lambda request, context: b"")  # an empty answer: all was taken
    service = grpc.method_handlers_generic_handler("opentelemetry.proto.collector.trace.v1.TraceService", {"Export": took})
    server.add_generic_rpc_handlers((service,))
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main(int(sys.argv[1]))
