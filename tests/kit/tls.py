"""TLS before a broker, with certificates of a test's own."""

import asyncio
import datetime as dt
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.kit.waiting import PATIENCE

DAY: Final = dt.timedelta(days=1)


def certificate(folder: Path, name: str = "localhost", ends: dt.timedelta = DAY) -> Path:
    """Make a key and a self-signed certificate; return the path of the file with both."""
    key, now = ec.generate_private_key(ec.SECP256R1()), dt.datetime.now(dt.UTC)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 2 * DAY)
        .not_valid_after(now + ends)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / f"{name}.pem"
    path.write_bytes(secret + made.public_bytes(serialization.Encoding.PEM))
    return path


class Terminator:
    """A TLS proxy before a broker, as an operator puts one there."""

    def __init__(self, pem: Path) -> None:
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_3
        self._context.load_cert_chain(pem)
        self._loop = asyncio.new_event_loop()
        self.backend = 0
        self.heard = b""

    @contextmanager
    def running(self) -> Iterator[str]:
        thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        thread.start()
        start = asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        server = asyncio.run_coroutine_threadsafe(start, self._loop).result(PATIENCE)
        try:
            yield f"https://localhost:{server.sockets[0].getsockname()[1]}"
        finally:
            asyncio.run_coroutine_threadsafe(self._stop(server), self._loop).result(PATIENCE)
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join(PATIENCE)
            self._loop.close()

    async def _stop(self, server: asyncio.Server) -> None:
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind = await asyncio.open_connection("127.0.0.1", self.backend)
        with suppress(ConnectionError, asyncio.CancelledError):
            await asyncio.gather(
                self._pass(reader, behind[1], heard=True), self._pass(behind[0], writer)
            )
        for end in (writer, behind[1]):
            end.transport.abort()

    async def _pass(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, heard: bool = False
    ) -> None:
        while piece := await source.read(65_536):
            self.heard += piece if heard else b""
            target.write(piece)
            await target.drain()
        target.close()
