"""Drive scbroker's own client by the steps of `scbroker conformance client`; an example for other clients.

    scbroker conformance client -- python -m scbroker.conformance.adapter

Reads a step as JSON from each line of standard input and answers it by a line on standard output.
Spec: docs/spec/conformance.md.
"""

import json
import sys
from typing import Any, Final
from uuid import UUID

from scbroker import AccessLevel, BrokerError, Group, MemberRole, MemoryTrustStore, ServerProvider

_PATIENCE: Final = 60.0
_LONGEST: Final = 1024


class Devices:
    """Clients by name, each with a trust store of its own in memory."""

    def __init__(self) -> None:
        self._devices: dict[str, ServerProvider] = {}

    def answer(self, step: dict[str, Any]) -> dict[str, Any]:
        """Run a step and return its answer."""
        try:
            return {"ok": self._run(step)}
        except BrokerError as error:
            return {"error": error.code, "detail": str(error)}

    def _device(self, name: str) -> ServerProvider:
        if name not in self._devices:
            # Address, API key and application name come from the environment.
            self._devices[name] = ServerProvider.fromEnvironment(trustStore=MemoryTrustStore())
        return self._devices[name]

    def _run(self, step: dict[str, Any]) -> dict[str, Any]:
        device, do = self._device(step["device"]), step["do"]
        content = step.get("content", "").encode() * step.get("repeat", 1)
        container = UUID(step["containerId"]) if "containerId" in step else UUID(int=0)
        user = UUID(step["userId"]) if "userId" in step else UUID(int=0)
        group = UUID(step["groupId"]) if "groupId" in step else UUID(int=0)
        members = [
            AccessLevel(UUID(each.get("userId") or each["group"]), "|".join(each["permissions"]))
            for each in step.get("members", ())
            if "permissions" in each
        ]
        roles = [
            MemberRole(UUID(each["userId"]), each["role"])
            for each in step.get("members", ())
            if "role" in each
        ]
        match do:
            case "register":
                device.register(step["password"], step["passphrase"]).result(_PATIENCE)
                return {"userId": str(device.getUserId().result(_PATIENCE))}
            case "logIn":
                device.logIn(user, passphrase=step["passphrase"]).result(_PATIENCE)
            case "renewKeys":
                device.changeCredentials(
                    step["password"], step["passphrase"], compromised=True
                ).result(_PATIENCE)
            case "keys":
                return {"keys": len(device.getPublicKeys(user).result(_PATIENCE))}
            case "create":
                made = device.createContainer(content, accessLevels=members).result(_PATIENCE)
                return {"containerId": str(made.id)}
            case "get":
                found = device.getContainer(container).result(_PATIENCE)
                return {"version": found.version, "length": found.length, **_shown(found.content)}
            case "update":
                device.updateContainerContent(container, content).result(_PATIENCE)
            case "share":
                device.updateContainerAccessLevels(container, members).result(_PATIENCE)
            case "delete":
                device.deleteContainer(container).result(_PATIENCE)
            case "events":
                events = device.getEvents().result(_PATIENCE)
                kinds = [each.eventType.value for each in events if each.containerId == container]
                return {"events": kinds}
            case "createGroup":
                created = device.createGroup(step["name"], roles).result(_PATIENCE)
                return {"groupId": str(created.id)}
            case "groups":
                return {"groups": _ids(device.getGroups().result(_PATIENCE))}
            case "acceptGroup":
                device.acceptGroup(group).result(_PATIENCE)
            case "addGroupMembers":
                device.addGroupMembers(group, roles).result(_PATIENCE)
            case "removeGroupMembers":
                removed = [UUID(each) for each in step["userIds"]]
                device.removeGroupMembers(group, removed).result(_PATIENCE)
            case "leaveGroup":
                device.leaveGroup(group).result(_PATIENCE)
            case _:
                raise BrokerError.invalidArgumentError(f"{do!r} is not a step of this adapter.")
        return {}


def _shown(content: bytes | None) -> dict[str, str]:
    return {} if content is None or len(content) > _LONGEST else {"content": content.decode()}


def _ids(found: list[Group | BrokerError]) -> list[str]:
    """Return the ids of groups; raise the error of one that cannot be read."""
    for each in found:
        if isinstance(each, BrokerError):
            raise each
    return [str(each.id) for each in found if isinstance(each, Group)]


def main() -> None:
    """Answer every step until standard input ends."""
    devices = Devices()
    for line in sys.stdin:
        print(json.dumps(devices.answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
