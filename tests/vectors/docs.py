"""The worked examples of the specification: taken from the vectors, written at their marks."""

import textwrap
from collections.abc import Callable
from pathlib import Path

import msgspec

from tests.vectors.files import Vector, load, signature_of, vectors

SPEC = Path(__file__).parents[2] / "docs" / "spec"
PAGES = {
    "ids": "ids.md",
    "key_files": "keyfile.md",
    "container_records": "container.md",
    "orders": "protocol.md",
    "links": "links.md",
}


def write() -> None:
    """Puts every example behind its mark, in place of the one that stands there."""
    for name, page in PAGES.items():
        path = SPEC / page
        path.write_text(renewed(path.read_text(encoding="utf-8"), name), encoding="utf-8")


def renewed(text: str, name: str) -> str:
    mark = f"<!-- vectors: {name} -->"
    before, found, after = text.partition(mark)
    if not found:
        raise ValueError(f"There is no mark {mark}.")
    if after.startswith("\n\n```text\n"):
        after = after.removeprefix("\n\n```text\n").partition("\n```\n")[2]
        after = "\n" + after if after else ""
    return f"{before}{mark}\n\n```text\n{EXAMPLES[name]()}\n```\n{after.removeprefix(chr(10))}"


def lines(*rows: tuple[str, str]) -> str:
    """Names and hexadecimal values, broken where they are long."""
    width = max(len(name) for name, _ in rows)
    return "\n".join(
        textwrap.fill(
            value, 100, break_on_hyphens=False,
            initial_indent=f"{name:{width}}  ", subsequent_indent=" " * (width + 2),
        )
        for name, value in rows
    )  # fmt: skip


def short(value: str, size: int = 32) -> str:
    """The beginning and the end of what is too long to print."""
    if len(value) <= 4 * size:
        return value
    return f"{value[: 2 * size]} ... {value[-16:]} ({len(value) // 2} bytes)"


def named(file: str, name: str) -> Vector:
    return next(vector for vector in vectors(file) if vector["id"] == name)


def ids() -> str:
    user, container = named("ids", "alice"), named("ids", "a container of hers")
    hashed, person = named("ids", "H container-id"), named("people", "alice")
    first = person["keyRecords"][0]
    return lines(
        ('H("container-id", "abc")', hashed["hash"]),
        ("Ed25519 seed", person["signing"][0]["ed25519"]),
        ("ML-DSA-65 seed", person["signing"][0]["mlDsa"]),
        ("public signing key", short(user["signingKey"])),
        ("fingerprint", user["fingerprint"]),
        ("shown as", user["shown"]),
        ("userId", user["userId"]),
        ("key record 0", short(first["body"], 60)),
        ("its signature", short(signature_of(first).hex())),
        ("nonce", container["nonce"]),
        ("containerId", container["containerId"]),
    )


def key_files() -> str:
    vector = vectors("key_files")[0]
    return lines(
        ("password", named("key_files", "with both secrets")["password"]),
        ("passphrase", vector["passphrase"]),
        ("userId", vector["userId"]),
        ("auth", vector["auth"]),
        ("wrap", vector["wrap"]),
        ("passwordKey", vector["passwordKey"]),
        ("KeyRing", vector["keyRing"]),
        ("KeyFile", vector["keyFile"]),
    )


def container_records() -> str:
    given = load("container_records")["given"]
    first, second = given["records"]["create"], given["records"]["edit"]
    bare = given["records"]["create, bare"]["body"]
    content = msgspec.msgpack.decode(bytes.fromhex(bare)[1:])[10]
    entry = first["accessList"][0]
    secrets = given["secrets"]
    return lines(
        ("containerId", given["containerId"]),
        ("entry 0 of 4, salt", entry["salt"]),
        ("entry 0 of 4", entry["entry"]),
        ("container key 1", secrets["containerKeys"]["1"]),
        ("record 1", first["body"]),
        ("hash of its content", content.hex()),
        ("its bare form", bare),
        ("its signature", short(signature_of(first).hex())),
        ("content 2, part key", secrets["partKeys"]["content 2"]["key"]),
        ("content 2, sealed", secrets["sealed"]["2"]["content"]),
        ("record 2", second["body"]),
    )


def orders() -> str:
    vector = named("orders", "store a key file, with a reminder")
    given = load("orders")["given"]["storings"][vector["storing"]]
    return lines(
        ("keyFile", given["keyFile"]),
        ("auth", given["auth"]),
        ("digest", vector["digest"]),
        ("nonce", vector["nonce"]),
        ("Order", vector["order"]),
        ("its signature", short(signature_of(vector).hex())),
    )


def links() -> str:
    link, derived = named("links", "with a password"), named("links", "passphrase with password")
    return lines(
        *(
            (name, link[name])
            for name in ("serverUrl", "secret", "fingerprint", "userId", "apiKey")
        ),
        ("url", link["url"]),
        ("password", derived["password"]),
        ("passphrase", derived["passphrase"]),
    )


EXAMPLES: dict[str, Callable[[], str]] = {
    "ids": ids,
    "key_files": key_files,
    "container_records": container_records,
    "orders": orders,
    "links": links,
}
