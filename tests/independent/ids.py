"""Names: docs/spec/ids.md, 3; docs/spec/container.md, 1; docs/spec/groups.md, 1."""

from tests.independent.encodings import labelled_hash, uuid8


def fingerprint_of(signing_key_0: bytes) -> bytes:
    return labelled_hash("fingerprint", signing_key_0)


def user_id_of(fingerprint: bytes) -> bytes:
    return uuid8(fingerprint)


def shown(fingerprint: bytes) -> str:
    """A fingerprint as people compare it."""
    return fingerprint.hex(" ", 2)


def group_name_of(creator: bytes, nonce: bytes) -> bytes:
    """The hash of which a container's id is made; of a group it is the name."""
    return labelled_hash("container-id", creator + nonce)


def container_id_of(creator: bytes, nonce: bytes) -> bytes:
    return uuid8(group_name_of(creator, nonce))
