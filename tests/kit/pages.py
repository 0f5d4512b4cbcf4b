"""The pages of commands as processes, and requests to them as a browser sends them.

with OperatorsPage(broker) as page:
    page.enter()
    assert "Overview" in page.get("/overview").expect(200).text

with UsersPage(alice) as page:
    page.enter()
    assert "letter.txt" in page.get("/containers").expect(200).text
"""

from __future__ import annotations

import html
import http.client
import json
import re
import signal
import urllib.parse
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.kit.brokers import BrokerProcess
from tests.kit.operators import variables_of
from tests.kit.people import Person
from tests.kit.processes import Process, start
from tests.kit.waiting import PATIENCE


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def words(self) -> str:
        """The text of a view, without tags, each run of spaces as one."""
        return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", self.text)).split())

    def expect(self, status: int) -> Self:
        assert self.status == status, self
        return self


class ServedPage:
    """A command that serves a page, with these options and variables, until its `with` block ends."""

    def __init__(self, options: list[str], variables: Mapping[str, str], folder: Path) -> None:
        self._options, self._variables, self._folder = options, variables, folder
        self.cookie: str | None = None
        self.root = ""
        """The secret path, once the browser has entered."""

    def __enter__(self) -> Self:
        options, variables, folder = self._options, self._variables, self._folder
        self._log = (folder / "page-stderr").open("w+b")
        self._process: Process = start(options, variables, folder, self._log)
        assert self._process.stdout is not None
        try:
            first = self._process.stdout.readline()
            assert first, self.log
            self.printed: dict[str, Any] = json.loads(first)
        except BaseException:
            self._release()
            raise
        parts = urllib.parse.urlsplit(self.printed["url"])
        self.host, self.port = parts.hostname or "", parts.port or 0
        self.code = parts.fragment
        self.origin = f"http://{parts.netloc}"
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        finally:
            self._release()

    def _release(self) -> None:
        """End the process whatever it does, and close its files."""
        self._process.kill()
        self.wait()
        self._log.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        """What the command wrote to standard error."""
        self._log.seek(0)
        return self._log.read().decode()

    def stop(self, by: signal.Signals = signal.SIGINT) -> int:
        """Ctrl-C; gives the exit status."""
        self._process.send_signal(by)
        return self.wait()

    def wait(self, seconds: float = PATIENCE) -> int:
        """Wait until the command has ended by itself; gives the exit status."""
        status = self._process.wait(seconds)
        if self._process.stdout is not None:
            self._process.stdout.close()
        return status

    def request(
        self,
        method: str,
        path: str,
        fields: Mapping[str, str] | bytes | None = None,
        headers: Mapping[str, str | None] = {},
        seconds: float = PATIENCE,
    ) -> Reply:
        """One request, with the headers of a browser that is on the page; a header of None is left out.

        After so many seconds without an answer the connection is closed, with a `TimeoutError`.
        """
        given: dict[str, str | None] = {"Host": f"{self.host}:{self.port}", "Cookie": self.cookie}
        body = fields
        if isinstance(fields, Mapping):
            body = urllib.parse.urlencode(fields).encode()
        if method == "POST":
            given |= {"Origin": self.origin, "Content-Type": "application/x-www-form-urlencoded"}
        given |= {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "navigate", **headers}
        connection = http.client.HTTPConnection(self.host, self.port, timeout=seconds)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in given.items():
                if value is not None:
                    connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body if isinstance(body, bytes) else None)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, found, answer.read())
        finally:
            connection.close()

    def enter(self) -> Reply:
        """Exchange the code for the cookie, as the page's script does; returns the first view."""
        answer = self.request("POST", "/enter", {"code": self.code}).expect(303)
        self.cookie = answer.headers["set-cookie"].partition(";")[0]
        first = answer.headers["location"]
        self.root = first.rpartition("/")[0]
        return self._follow(first)

    def get(self, path: str, headers: Mapping[str, str | None] = {}) -> Reply:
        """Read a view by its path below the secret one."""
        return self.request("GET", self.root + path, headers=headers)

    def post(self, path: str, fields: Mapping[str, str] = {}) -> Reply:
        """Send the form of the view at this path, with its hidden fields and these; return the next view."""
        form = self.get(path).expect(200).text
        hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', form))
        answer = self.request("POST", self.root + path, {**hidden, **fields})
        if answer.status != 303:
            return answer
        return self._follow(answer.headers["location"])

    def _follow(self, location: str) -> Reply:
        answer = self.request("GET", location)
        return self._follow(answer.headers["location"]) if answer.status == 303 else answer


class OperatorsPage(ServedPage):
    """`scbroker admin ui` with these options, on the stores of a broker."""

    def __init__(self, broker: BrokerProcess, *options: str) -> None:
        self.broker = broker
        common = ["admin", "ui", "--url", broker.url, "--no-open", "--json"]
        stores = ["--data-dir", str(broker.directory)]
        super().__init__([*common, *options, *stores], variables_of(broker), broker.directory)


class UsersPage(ServedPage):
    """`scbroker ui` with these options, of a person at a machine of their own."""

    def __init__(self, person: Person, *options: str | Path) -> None:
        self.person = person
        common = ["ui", "--no-open", "--json", *map(str, options)]
        super().__init__(common, person.environment, person.home)

    def call(self, path: str, body: bytes, headers: Mapping[str, str | None] = {}) -> Reply:
        """Send a body as the page's script does, with the secret of forms that the list has."""
        form = self.get("/containers").text
        secrets = re.findall(r'data-form="([^"]*)"', form)
        own = {"X-Page-Form": secrets[0] if secrets else "", "Sec-Fetch-Mode": "cors"}
        return self.request("POST", self.root + path, body, {**own, **headers})

    def upload(self, name: str, content: bytes) -> uuid.UUID:
        """Store a file; return the id of its container."""
        query = urllib.parse.urlencode({"name": name, "modified": "1700000000000"})
        answer = self.call(f"/upload?{query}", content).expect(200)
        return uuid.UUID(json.loads(answer.text)["path"].rpartition("/")[2])
