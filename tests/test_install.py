"""Installing from a clone, as the README says: into empty environments, with each extra and without."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import scbroker
from tests.kit.both_engines import on_sqlite
from tests.kit.brokers import BrokerProcess

ROOT = Path(__file__).parent.parent
UV = [sys.executable, "-m", "uv", "--quiet"]
_UNREACHABLE = re.compile(r"error sending request|dns error|Failed to fetch", re.IGNORECASE)
NewEnvironment = Callable[[str], "Environment"]

pytestmark = pytest.mark.long


class Environment:
    """A virtual environment, and a home folder for those who use it."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "venv" / "bin"
        self.home = folder / "home"
        self.home.mkdir()
        _run([*UV, "venv", "--seed", "--python", sys.executable, str(folder / "venv")])

    def run(
        self, *command: str, status: int = 0, cwd: Path | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SCBROKER_", "PYTHON"))}
        path = f"{self.bin}{os.pathsep}{os.environ['PATH']}"
        env = kept | {"HOME": str(self.home), "PATH": path} | variables
        done = subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            env=env, cwd=cwd or self.home, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=300, check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == status, done
        return done


def _run(command: list[str]) -> None:
    """Run a command of uv; skip the test if it reaches no package index."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode and _UNREACHABLE.search(done.stderr):
        pytest.skip(f"uv reaches no package index: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr


def test_the_pinned_packages_have_all_that_they_need() -> None:
    """`make install` resolves nothing, so it would not notice a package that is missing in the list."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that the README builds."""
    folder = tmp_path_factory.mktemp("wheel")
    command = "hatchling build --target wheel"
    assert f"-m {command}`" in (ROOT / "README.md").read_text("utf-8")
    _run([sys.executable, "-m", *command.split(), "--directory", str(folder)])
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> NewEnvironment:
    """Make environments with the wheel and an extra, as "[cli]", of the pinned versions."""
    made: dict[str, Environment] = {}

    def install(extra: str) -> Environment:
        if extra not in made:
            new = made[extra] = Environment(tmp_path_factory.mktemp("installed"))
            what = [f"scbroker{extra} @ {wheel.as_uri()}", "--constraint", "requirements-dev.txt"]
            _run([*UV, "pip", "install", "--python", str(new.bin / "python"), *what])
        return made[extra]

    return install


@on_sqlite
def test_without_an_extra_the_library_works_and_a_command_names_its_extra(
    installed: NewEnvironment, broker: BrokerProcess
) -> None:
    bare = installed("")
    script = (
        "from scbroker import ServerProvider\n"
        "with ServerProvider.fromEnvironment() as provider:\n"
        "    provider.register('A password 1', 'A passphrase 1').result()\n"
        "    made = provider.createContainer(b'some bytes').result()\n"
        "    print(provider.getContainerContent(made.id).result())\n"
    )
    done = bare.run(
        "python", "-c", script, SCBROKER_SERVER_URL=broker.url,
        SCBROKER_API_KEY=str(broker.api_key), SCBROKER_APPLICATION_NAME="installed",
    )  # fmt: skip
    assert done.stdout == "b'some bytes'\n"
    refused = bare.run("scbroker", "whoami", status=1).stderr
    assert "run `pip install './scbroker[cli]'`" in refused


@on_sqlite
def test_with_cli_a_user_registers_stores_and_reads(
    installed: NewEnvironment, broker: BrokerProcess
) -> None:
    user = installed("[cli]")
    assert user.run("scbroker", "--version").stdout == f"scbroker {scbroker.__version__}\n"
    assert "no profile yet" in user.run("scbroker", "whoami", status=2).stderr
    register = ["register", "--server", broker.url, "--name", "Alice", "--session-folder", "kept"]
    user.run(
        "scbroker", *register, SCBROKER_API_KEY=str(broker.api_key),
        SCBROKER_PASSWORD="A password 1", SCBROKER_PASSPHRASE="A passphrase 1",
    )  # fmt: skip
    assert "name\tAlice\n" in user.run("scbroker", "whoami").stdout
    (user.home / "letter.txt").write_text("Dear Bob")
    user.run("scbroker", "put", "letter.txt")
    user.run("scbroker", "get", "letter.txt", "--output", "copy.txt")
    assert (user.home / "copy.txt").read_text() == "Dear Bob"
    assert "'./scbroker[server]'" in user.run("scbroker", "serve", status=1).stderr


@on_sqlite
def test_with_server_a_broker_serves_and_commands_of_users_name_their_extra(
    installed: NewEnvironment, broker: BrokerProcess
) -> None:
    operator = installed("[server]")
    assert operator.run("scbroker", "--version").stdout.startswith("scbroker ")
    served = subprocess.Popen(
        [operator.bin / "scbroker", "serve", "--port", "0", "--data-dir", operator.home / "data"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with served:
        assert served.stdout is not None
        lines = [served.stdout.readline() for _ in range(4)]
        served.terminate()
    assert any(line.startswith("scbroker serves http://") for line in lines), lines
    assert operator.run("scbroker", "admin", "check", "--data-dir", "data").returncode == 0
    done = operator.run(
        "scbroker", "register", "--server", broker.url, "--name", "Alice", "--session-folder", "kept",
        status=1, SCBROKER_API_KEY=str(broker.api_key),
        SCBROKER_PASSWORD="A password 1", SCBROKER_PASSPHRASE="A passphrase 1",
    )  # fmt: skip
    assert "'./scbroker[cli]'" in done.stderr


@on_sqlite
def test_with_fsspec_a_program_opens_containers_by_their_names(
    installed: NewEnvironment, broker: BrokerProcess
) -> None:
    program = installed("[fsspec]")
    script = (
        "import fsspec\n"
        "from scbroker import ServerProvider\n"
        "kept = {'sessionStore': 'kept'}\n"
        "with ServerProvider.fromEnvironment(**kept) as provider:\n"
        "    provider.register('A password 1', 'A passphrase 1', keep=True).result()\n"
        "with fsspec.open('scbroker://notes/today.txt', 'w', **kept) as file:\n"
        "    file.write('some text')\n"
        "with fsspec.open('scbroker://notes/today.txt', 'r', **kept) as file:\n"
        "    print(file.read(), fsspec.filesystem('scbroker', **kept).find(''))\n"
    )
    done = program.run(
        "python", "-c", script, SCBROKER_SERVER_URL=broker.url,
        SCBROKER_API_KEY=str(broker.api_key), SCBROKER_APPLICATION_NAME="installed",
    )  # fmt: skip
    assert done.stdout == "some text ['notes/today.txt']\n"


def test_two_users_share_with_the_newest_releases_of_all_dependencies(
    wheel: Path, tmp_path: Path
) -> None:
    newest = Environment(tmp_path)
    what = [f"scbroker[cli,server] @ {wheel.as_uri()}", "pytest"]
    _run([*UV, "pip", "install", "--python", str(newest.bin / "python"), *what])
    (newest.home / "test_share.py").write_text(
        "from scbroker import AccessLevel\n"
        "def test_share(scbroker_broker):\n"
        "    with scbroker_broker.new_user() as alice, scbroker_broker.new_user() as bob:\n"
        "        both = [AccessLevel(each.getUserId().result(), 511) for each in (alice, bob)]\n"
        "        note = alice.createContainer(b'Milk', accessLevels=both).result()\n"
        "        assert bob.getContainer(note.id).result().content == b'Milk'\n"
    )
    assert "1 passed" in newest.run("pytest").stdout


@pytest.mark.parametrize("command", re.findall(
    r"^    ((?:uv|pipx|pip) .*?)(?:  .*)?$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE
))  # fmt: skip
def test_each_command_of_the_readme_that_installs_from_the_clone_works(
    command: str, tmp_path: Path
) -> None:
    here = Environment(tmp_path)
    tool, *arguments = [each.strip('"') for each in command.split()]
    variables = {
        "UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(here.bin),
        "PIPX_HOME": str(tmp_path / "tools"), "PIPX_BIN_DIR": str(here.bin),
    }  # fmt: skip
    programs = {"uv": UV, "pipx": [*UV, "tool", "run", "pipx"], "pip": [str(here.bin / "pip")]}
    done = subprocess.run(
        [*programs[tool], *arguments], cwd=ROOT, env=os.environ | variables,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert here.run("scbroker", "--version").stdout == f"scbroker {scbroker.__version__}\n"
