"""One target under atheris: `python -m assurance.fuzz.harness TARGET CORPUS... [-libFuzzer's options]`."""

import random
import sys

import atheris
from hypothesis import given

with atheris.instrument_imports(include=["scbroker"]):
    from assurance.fuzz.target import run_one
    from assurance.fuzz.targets import TARGETS

_ENTROPY = 4096
_MEASURED = 50
"""One of so many inputs has its memory measured, which takes three times as long."""


def main() -> None:
    name, *options = sys.argv[1:]
    target, drawn = TARGETS[name], list[bytes]()
    count = 0

    @given(target.inputs())
    def draw(data: bytes) -> None:
        drawn.append(data)

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        """Half of all new inputs are drawn: valid ones with faults, which bytes alone rarely become."""
        rng = random.Random(seed)
        if rng.random() < 0.5:
            drawn.clear()
            draw.hypothesis.fuzz_one_input(rng.randbytes(_ENTROPY))  # type: ignore[attr-defined]
            if drawn and len(drawn[-1]) <= most:
                return drawn[-1]
        return bytes(atheris.Mutate(data, most))

    def run(data: bytes) -> None:
        nonlocal count
        count += 1
        run_one(target, data, measured=count % _MEASURED == 0)

    with target.around():
        for seed in target.seeds():
            run_one(target, seed)
        atheris.Setup([sys.argv[0], *options], run, custom_mutator=mutate)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
