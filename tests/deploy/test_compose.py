"""The compositions of deploy/compose are valid, and give no container more than it needs.

Docker itself runs nowhere in the tests: it would fetch images. `compose-spec.json` is the schema of the
Compose Specification, unchanged (github.com/compose-spec/compose-spec, Apache-2.0).
"""

import json
from pathlib import Path
from typing import Any, Final

import jsonschema_rs
import msgspec
import pytest

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "deploy" / "compose"
SCHEMA: Final = json.loads((Path(__file__).parent / "compose-spec.json").read_text("utf-8"))
FILES: Final = ("one-machine/compose.yaml", "cluster/compose.yaml", "cluster/compose.folder.yaml")
WHOLE: Final = FILES[:2]


def composition(file: str) -> dict[str, Any]:
    # Compose's own tag, which other readers of YAML do not know.
    text = (FOLDER / file).read_text("utf-8").replace("!reset ", "")
    found: dict[str, Any] = msgspec.yaml.decode(text)
    return found


def services(file: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = composition(file)["services"]
    return found


@pytest.mark.parametrize("file", FILES)
def test_a_composition_is_valid_by_the_schema_of_compose_files(file: str) -> None:
    jsonschema_rs.validator_for(SCHEMA).validate(composition(file))


@pytest.mark.parametrize("file", WHOLE)
def test_no_container_can_write_its_image_or_gain_privileges(file: str) -> None:
    for name, service in services(file).items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert "privileged" not in service, name
        if service["image"] == "scbroker":
            assert "cap_add" not in service
            assert "ports" not in service


@pytest.mark.parametrize("file", WHOLE)
def test_only_the_proxy_is_open_to_the_network(file: str) -> None:
    open_ones = {name for name, service in services(file).items() if "ports" in service}
    assert open_ones == {"caddy"}


@pytest.mark.parametrize("file", WHOLE)
def test_the_brokers_believe_the_addresses_of_the_inner_network_alone(file: str) -> None:
    (subnet,) = composition(file)["networks"]["inside"]["ipam"]["config"]
    for service in services(file).values():
        if service["image"] == "scbroker":
            assert service["environment"]["SCBROKER_TRUSTED_PROXIES"] == subnet["subnet"]


def test_secrets_of_the_cluster_are_files_and_no_variables() -> None:
    for service in services(WHOLE[1]).values():
        names = service.get("environment", {})
        assert [
            n for n in names if "KEY" in n or ("PASSWORD" in n and not n.endswith("_FILE"))
        ] == []


@pytest.mark.parametrize("file", WHOLE)
def test_the_files_that_a_composition_names_exist(file: str) -> None:
    folder = (FOLDER / file).parent
    for service in services(file).values():
        if build := service.get("build"):
            assert (folder / build["context"] / build["dockerfile"]).is_file()
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            if source.startswith(".") and source != "./backups":
                assert (folder / source).is_file(), source
