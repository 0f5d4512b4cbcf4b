"""The users of all vectors: seeds, public keys, key records."""

from typing import Any

from scbroker.records.canonical import user_id_of
from tests.vectors.cast import Person, cast, decryption_key, signing_key
from tests.vectors.files import store


def make() -> None:
    store(
        "people",
        "The users of the other files, with the seeds of their keys (docs/spec/ids.md, 2.1 and 2.4) "
        "and their key records. They are vectors of valid chains, besides.",
        [_shown(someone) for someone in cast().values()],
    )


def _shown(someone: Person) -> dict[str, Any]:
    chain = someone.chain()
    counts = {kind: sum(found == kind for found, _ in chain.keys) for kind in (0, 1)}
    return {
        "id": someone.name,
        "comment": "Rotated both keys." if len(someone.records) > 2 else "One key of each type.",
        "result": "valid",
        "fingerprint": someone.fingerprint,
        "userId": str(user_id_of(someone.fingerprint)),
        "signing": [
            dict(zip(("ed25519", "mlDsa"), signing_key(someone.name, n).seeds, strict=True))
            for n in range(counts[0])
        ],
        "encryption": [
            dict(zip(("mlKem", "x25519"), decryption_key(someone.name, n).seeds, strict=True))
            for n in range(counts[1])
        ],
        "keyRecords": [
            {"body": record.body, "signature": record.signature} for record in someone.records
        ],
    }
