"""Search with atheris for inputs that break a decoder, for as long as there is time.

    python -m assurance.fuzz.run --seconds 600 [--seed N] [target ...]

Each target has a process of its own and its share of the time, and starts from its corpus, its seeds and
what earlier runs found (`.cache/fuzz/`, not part of the project). An input that fails joins the corpus. The
target `openapi` is a broker under requests made from its own description. The exit status is 0 if nothing
failed.
"""

import argparse
import hashlib
import importlib.util
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from assurance.fuzz.targets import CORPUS, TARGETS
from tests.kit.waiting import PATIENCE

OPENAPI: Final = "openapi"
_ROOT: Final = Path(__file__).parents[2]
_FOUND: Final = _ROOT / ".cache" / "fuzz"
_MEGABYTES: Final = 4096
_LARGEST: Final = 1 << 16


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600.0, help="for all targets together")
    parser.add_argument("--seed", type=int, default=random.randrange(1, 1 << 31))
    known = [*TARGETS, OPENAPI]
    parser.add_argument("targets", nargs="*", metavar="target", help=", ".join(known))
    given = parser.parse_args()
    names = given.targets or known
    if unknown := set(names) - {*known}:
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    if names != [OPENAPI] and importlib.util.find_spec("atheris") is None:
        parser.error("atheris is not installed: run `make fuzz` (Linux on x86-64)")
    share = given.seconds / len(names)
    print(f"seed {given.seed}, {share:.1f} s each", flush=True)
    failed = [
        name
        for name in names
        if not (_ask_broker if name == OPENAPI else search)(name, share, given.seed)
    ]
    print(f"{len(failed)} of {len(names)} targets failed {', '.join(failed)}")
    return 1 if failed else 0


def search(name: str, seconds: float, seed: int) -> bool:
    """Search one target; return whether nothing failed. What fails is put into its corpus."""
    found = _FOUND / name
    found.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        command = [
            sys.executable, "-m", "assurance.fuzz.harness", name, str(found), str(CORPUS / name),
            f"-max_total_time={max(1, round(seconds))}", f"-seed={seed}", f"-max_len={_LARGEST}",
            f"-timeout={round(PATIENCE)}", f"-rss_limit_mb={_MEGABYTES}", f"-artifact_prefix={folder}/",
            "-print_final_stats=1", "-verbosity=0",
        ]  # fmt: skip
        variables = {**os.environ, "TMPDIR": folder}
        try:
            most = seconds + 3 * PATIENCE  # with its start and the last input
            done = subprocess.run(
                command, cwd=_ROOT, env=variables, capture_output=True, timeout=most
            )
            output, status = (done.stdout + done.stderr).decode("utf-8", "replace"), done.returncode
        except subprocess.TimeoutExpired:
            output, status = "It came to no end.", 1
        artifacts = [path for path in Path(folder).glob("*-*") if path.is_file()]
        kept = [keep(name, path.read_bytes()) for path in artifacts]
    count = [line for line in output.splitlines() if "number_of_executed_units" in line]
    print(f"{name:16} {' '.join(count).rpartition(' ')[2] or '?':>9} inputs", flush=True)
    if status:
        print(f"  FAILED with status {status}, by {kept}:\n{output[-4000:]}", flush=True)
    return status == 0


def keep(name: str, data: bytes) -> Path:
    """Add an input to the corpus of a target; return its path."""
    path = CORPUS / name / hashlib.sha256(data).hexdigest()[:16]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path.relative_to(_ROOT)


def _ask_broker(name: str, seconds: float, seed: int) -> bool:
    """Send requests made from the broker's own description; return whether it answered all as described."""
    del name
    test = Path(__file__).with_name("test_broker_from_its_openapi.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)]
    variables = {**os.environ, "FUZZ_SECONDS": str(seconds), "FUZZ_SEED": str(seed)}
    return subprocess.run(command, env=variables, cwd=_ROOT).returncode == 0


if __name__ == "__main__":
    raise SystemExit(main())
