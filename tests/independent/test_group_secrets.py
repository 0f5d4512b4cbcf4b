"""group_secrets.json: docs/spec/groups.md, 3.2 to 3.4."""

from collections.abc import Callable

from tests.independent import group_secrets
from tests.independent.encodings import sha256
from tests.independent.group_secrets import Info, WrapInfo
from tests.independent.vectors import Vector, cases, expect, octets, people


@cases("group_secrets")
def test_secrets_wraps_and_infos_are_judged_as_the_vectors_say(vector: Vector) -> None:
    """A secret gives commitment and key of one epoch, a wrap is for one member, an info has one hash."""
    expect(vector, lambda: READERS[vector["kind"]](vector))


@cases("group_secrets", "valid", "info")
def test_infos_are_written_and_sealed_as_they_were_read(vector: Vector) -> None:
    """What was read of an info is all that it says: sealing it gives an info that opens to it."""
    group, secret = octets(vector["groupName"]), octets(vector["secret"])
    secrets = [None if one is None else octets(one) for one in vector["secrets"]]
    info = Info(vector["name"], vector["description"], secrets)
    assert group_secrets.parse_info(info.stored()) == info
    sealed = group_secrets.seal_info(group, vector["epoch"], secret, info)
    digest = sha256(sealed)
    assert group_secrets.open_info(group, vector["epoch"], secret, digest, sealed) == info


@cases("group_secrets", "valid", "wrap")
def test_secrets_are_wrapped_so_that_they_open(vector: Vector) -> None:
    """Each wrap is for one member and one epoch."""
    private = people()[vector["private"]].encryption[vector["privateIndex"]]
    secret = octets(vector["secret"])
    wrap = group_secrets.wrap_secret(private.public, _info(vector), secret)
    assert group_secrets.unwrap_secret(private, _info(vector), wrap) == secret


def check_secret(vector: Vector) -> None:
    group, secret = octets(vector["groupName"]), octets(vector["secret"])
    committed, public = octets(vector["commitment"]), octets(vector["publicKey"])
    group_secrets.check_secret(group, vector["epoch"], secret, committed, public)
    if vector["result"] == "valid":
        expected = [octets(seed) for seed in vector["seeds"]]
        assert group_secrets.seeds(group, secret) == expected


def open_wrap(vector: Vector) -> None:
    private = people()[vector["private"]].encryption[vector["privateIndex"]]
    secret = group_secrets.unwrap_secret(private, _info(vector), octets(vector["wrap"]))
    if vector["result"] == "valid":
        assert secret == octets(vector["secret"])


def open_info(vector: Vector) -> None:
    group, epoch = octets(vector["groupName"]), vector["epoch"]
    info = group_secrets.open_info(
        group, epoch, octets(vector["secret"]), octets(vector["info"]), octets(vector["sealed"])
    )
    commitments = {n: octets(one) for n, one in enumerate(vector["commitments"])}
    group_secrets.check_secrets(group, info, commitments)
    if vector["result"] == "valid":
        assert (info.name, info.description) == (vector["name"], vector["description"])
        secrets = [None if one is None else one.hex() for one in info.secrets]
        assert secrets == vector["secrets"]


def _info(vector: Vector) -> WrapInfo:
    return WrapInfo(
        octets(vector["groupName"]),
        vector["epoch"],
        octets(vector["commitment"]),
        octets(vector["fingerprint"]),
        vector["keyIndex"],
    )


READERS: dict[str, Callable[[Vector], None]] = {
    "secret": check_secret,
    "wrap": open_wrap,
    "info": open_info,
}
