"""Client and broker send the spans of one operation to a receiver of OpenTelemetry's protocol."""

import gzip
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.kit.brokers import BrokerProcess, environment
from tests.kit.waiting import PATIENCE, wait_until

pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")
pytestmark = [pytest.mark.long, pytest.mark.process]
PROGRAM = """
    import sys
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from scbroker import BrokerError, MemoryTrustStore, ServerProvider

    traces = TracerProvider()
    traces.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(traces)
    with ServerProvider(sys.argv[1], sys.argv[2], "traced", trustStore=MemoryTrustStore()) as provider:
        with trace.get_tracer("program").start_as_current_span("the program"):
            provider.register("Secret password 1", "Secret passphrase 1").result()
            made = provider.createContainer(b"Secret content", customHeaderObject="Secret name").result()
            print(made.id)
            try:
                provider.getContainer("00000000-0000-8000-8000-000000000000").result()
            except BrokerError as error:
                print(error.requestId)
"""


class Receiver:
    """Keeps the spans that it is sent."""

    def __init__(self) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
        )

        self.spans: list[tuple[str, Any]] = []
        """The service and the span."""
        self.raw = b""
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                receiver.raw += body
                for sent in ExportTraceServiceRequest.FromString(body).resource_spans:
                    named = {each.key: each.value.string_value for each in sent.resource.attributes}
                    for scope in sent.scope_spans:
                        found = [(named["service.name"], span) for span in scope.spans]
                        receiver.spans += found
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def named(self, name: str) -> list[Any]:
        return [span for _, span in self.spans if span.name == name]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    yield found
    found.close()


def attributes(span: Any) -> dict[str, Any]:
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


def run(broker: BrokerProcess, receiver: Receiver) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), str(broker.api_key), broker.url],
        env=environment(variables={"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url}),
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_an_operation_is_one_trace_from_the_program_to_the_brokers_database(
    receiver: Receiver, tmp_path: Path
) -> None:
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}
    with BrokerProcess(tmp_path, variables=variables) as broker:
        container, request_id = run(broker, receiver)
        appended = "PUT /v1/containers/{containerId}/records/{version}"
        viewed = "GET /v1/containers/{containerId}"
        wait_until(lambda: receiver.named(appended) and receiver.named(viewed))
        [program] = receiver.named("the program")
        [operation] = receiver.named("createContainer")
        assert operation.parent_span_id == program.span_id
        served = next(
            span for span in receiver.named(appended) if span.trace_id == program.trace_id
        )
        by_id = {span.span_id: span for _, span in receiver.spans}
        request = by_id[served.parent_span_id]
        assert request.name == "broker PUT"
        assert request.parent_span_id == operation.span_id
        assert attributes(served)["http.response.status_code"] == 201
        children = {span.name for span in by_id.values() if span.parent_span_id == served.span_id}
        assert {"database write", "database query"} & children
        [refused] = receiver.named(viewed)
        assert attributes(refused)["scbroker.request_id"] == request_id
    services = {service for service, _ in receiver.spans}
    assert "scbroker" in services
    for secret in (b"Secret", container.encode(), str(broker.api_key).encode(), b"127.0.0.1"):
        assert secret not in receiver.raw


def test_without_a_variable_nothing_of_opentelemetry_is_imported() -> None:
    program = """
        import sys
        from scbroker import tracing
        import scbroker.server.commands
        tracing.start("x")
        with tracing.span("x"), tracing.sent("x", {}), tracing.served("GET", "/v1/", []) as span:
            span.end(200, None)
        print(any(name.startswith("opentelemetry") for name in sys.modules))
    """
    for variables in ({}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"}):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program)],
            env=environment(variables=variables), capture_output=True, text=True, check=True,
            timeout=PATIENCE,
        )  # fmt: skip
        assert done.stdout == "False\n"
