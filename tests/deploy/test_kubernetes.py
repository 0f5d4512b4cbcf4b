"""The manifests of deploy/kubernetes are valid, and give a broker nothing that it does not need."""

import re
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import msgspec
import pytest

from scbroker.server.settings import PREFIX, load_settings

FOLDER: Final = Path(__file__).parents[2] / "deploy" / "kubernetes"
OLDEST: Final = "1.30"
KUSTOMIZATION: Final[dict[str, Any]] = msgspec.yaml.decode(
    (FOLDER / "kustomization.yaml").read_text("utf-8")
)


def manifests() -> list[dict[str, Any]]:
    return [
        msgspec.yaml.decode(document)
        for name in KUSTOMIZATION["resources"]
        for document in (FOLDER / name).read_text("utf-8").split("\n---\n")
    ]


def the(kind: str) -> dict[str, Any]:
    (found,) = [each for each in manifests() if each["kind"] == kind]
    return found


def broker() -> dict[str, Any]:
    (found,) = the("Deployment")["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("version", [OLDEST, kubernetes_validate.latest_version()])
@pytest.mark.parametrize("manifest", manifests(), ids=lambda each: each["kind"])
def test_a_manifest_is_valid_by_the_schema_of_kubernetes(
    manifest: dict[str, Any], version: str
) -> None:
    kubernetes_validate.validate(manifest, version, strict=True)


def test_every_manifest_is_applied() -> None:
    files = {path.name for path in FOLDER.glob("*.yaml")} - {"kustomization.yaml"}
    assert files == set(KUSTOMIZATION["resources"])


def test_the_pods_keep_the_rules_that_the_namespace_enforces() -> None:
    """The profile "restricted" of the Pod Security Standards."""
    labels = the("Namespace")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    pod = the("Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    security = broker()["securityContext"]
    assert security["allowPrivilegeEscalation"] is False
    assert security["readOnlyRootFilesystem"] is True
    assert security["capabilities"] == {"drop": ["ALL"]}


def test_only_the_paths_of_the_protocol_are_open_to_the_network() -> None:
    (rule,) = the("Ingress")["spec"]["rules"]
    found = [(each["path"], each["pathType"]) for each in rule["http"]["paths"]]
    assert found == [("/v1/", "Prefix"), ("/", "Exact")]


def test_the_settings_are_those_of_a_broker(tmp_path: Path) -> None:
    lines = (FOLDER / "settings.env").read_text("utf-8").splitlines()
    given = dict(line.split("=", 1) for line in lines)
    config = tmp_path / "broker.toml"
    in_secret = re.findall(r"(?:\\n|')(\w+) = ", (FOLDER / "README.md").read_text("utf-8"))
    assert in_secret == ["database_url", "broker_key"]
    config.write_text("".join(f'{name} = "postgresql://x"\n' for name in in_secret))
    variables = {name: value for name, value in given.items() if name.startswith(PREFIX)} | {
        each["name"]: each["value"] for each in broker()["env"]
    }
    settings = load_settings(variables | {"SCBROKER_CONFIG": str(config)})
    assert settings.origins == ["https://broker.example:443"]
    # A Service makes variables with its name in upper case, which would be read as settings.
    assert the("Deployment")["spec"]["template"]["spec"]["enableServiceLinks"] is False
