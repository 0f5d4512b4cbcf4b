"""Point a client at a scripted broker, scene by scene, and compare what it answers with scenes.toml.

The client is a program that takes steps as JSON lines. Spec: docs/spec/conformance.md.
"""

import json
import os
import shutil
import subprocess
import threading
import tomllib
from collections.abc import Sequence
from importlib.resources import files
from typing import IO, Any, Final, Self, cast

from scbroker.conformance.outcomes import Outcome, Report
from scbroker.conformance.scripted import ScriptedBroker
from scbroker.errors import InvalidArgumentError

_STEP_SECONDS: Final = 120.0
_END_SECONDS: Final = 5.0
_NOT_SENT: Final = {"ok", "error", "as"}
_IDS: Final = ("containerId", "groupId", "userId")


class _StepError(Exception):
    """A step did not end as the scene expects."""


def scenes() -> list[dict[str, Any]]:
    """Return the scenes in the order in which they are played."""
    text = (files(__package__) / "scenes.toml").read_text("utf-8")
    found: list[dict[str, Any]] = tomllib.loads(text)["scene"]
    return found


def play(
    command: Sequence[str],
    report: Report = lambda _: None,
    chosen: Sequence[dict[str, Any]] | None = None,
) -> list[Outcome]:
    """Play every scene with the client that this command starts; `report` gets each outcome at once.

    `chosen` are the scenes to play instead; a scene needs the earlier ones that name its devices and ids.
    Raises `InvalidArgumentError` if the command cannot be started.
    """
    if not command or shutil.which(command[0]) is None:
        raise InvalidArgumentError(
            f"{''.join(command[:1])!r} cannot be started: name a program that exists."
        )
    outcomes = []
    with ScriptedBroker() as broker, _Client(command, broker) as client:
        stage = _Stage(broker, client)
        for scene in scenes() if chosen is None else chosen:
            try:
                stage.play(scene)
                came = "as expected"
            except _StepError as error:
                came = str(error)
            outcomes.append(Outcome(scene["name"], scene["section"], "as expected", came))
            report(outcomes[-1])
    return outcomes


class _Client:
    """The client's process, with the address and the API key of the broker in its environment."""

    def __init__(self, command: Sequence[str], broker: ScriptedBroker) -> None:
        self._command = command
        self._environment = os.environ | {
            "SCBROKER_SERVER_URL": broker.url,
            "SCBROKER_API_KEY": str(broker.api_key),
            "SCBROKER_APPLICATION_NAME": "conformance",
        }

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(  # noqa: S603 - the command is the caller's own
            self._command,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._process.communicate(timeout=_END_SECONDS)
        except (subprocess.TimeoutExpired, OSError):
            self._process.kill()
            self._process.communicate()

    def exchange(self, sent: dict[str, Any]) -> dict[str, Any]:
        """Send a step and return its answer; kill a client that does not answer."""
        watch = threading.Timer(_STEP_SECONDS, self._process.kill)
        watch.start()
        try:
            stdin, stdout = cast(IO[str], self._process.stdin), cast(IO[str], self._process.stdout)
            stdin.write(json.dumps(sent) + "\n")
            stdin.flush()
            found = json.loads(stdout.readline())
        except (OSError, ValueError):
            found = None
        finally:
            watch.cancel()
        if not isinstance(found, dict):
            raise _StepError(f"{_shown(sent)}: the command did not answer with a JSON object")
        return found


class _Stage:
    """A client, its broker, and the ids that scenes have named."""

    def __init__(self, broker: ScriptedBroker, client: _Client) -> None:
        self._broker, self._client = broker, client
        self._names: dict[str, str] = {}

    def play(self, scene: dict[str, Any]) -> None:
        """Play a scene; raise `_StepError` at the first step that does not end as expected."""
        self._broker.honest()
        self._broker.breaches.clear()
        for step in scene["steps"]:
            if "broker" in step:
                self._broker.lie(step["broker"], self._filled(step), step.get("times", 2**31))
            elif "honest" in step:
                self._broker.lies.clear()
            else:
                self._take(step)
        if self._broker.breaches:
            raise _StepError(", ".join(sorted(set(self._broker.breaches))))

    def _take(self, step: dict[str, Any]) -> None:
        sent = self._filled({name: value for name, value in step.items() if name not in _NOT_SENT})
        for name in ("content", "password", "passphrase", "name"):
            if name in sent:
                self._broker.secrets.add(sent[name][:64].encode())
        came = self._client.exchange(sent)
        found, error = came.get("ok"), came.get("error")
        if "error" in step:
            if error not in step["error"]:
                wanted = " or ".join(step["error"])
                raise _StepError(
                    f"{_shown(step)}: {wanted} was expected, and {error or 'success'} came"
                )
            return
        if not isinstance(found, dict):
            raise _StepError(f"{_shown(step)}: success was expected, and {error!r} came")
        for name, value in self._filled(step.get("ok", {})).items():
            if found.get(name) != value:
                raise _StepError(f"{_shown(step)}: {name} {value!r} was expected, "
                                 f"and {found.get(name)!r:.80} came")  # fmt: skip
        if "as" in step:
            named = next((found[name] for name in _IDS if name in found), None)
            if not isinstance(named, str):
                raise _StepError(f"{_shown(step)}: the answer names no id")
            self._names["$" + step["as"]] = named

    def _filled(self, value: Any) -> Any:
        """Replace every `$name` by the id that an earlier step stored under this name, by `as`."""
        if isinstance(value, dict):
            return {name: self._filled(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self._filled(each) for each in value]
        if isinstance(value, str) and value.startswith("$"):
            if value not in self._names:
                raise _StepError(f"{value} is unknown, because an earlier step failed")
            return self._names[value]
        return value


def _shown(step: dict[str, Any]) -> str:
    return f"{step['do']} by {step['device']}"
