"""Every signature of a batch is judged as batches.json says (docs/spec/ids.md, section 2.7)."""

from typing import Any

import pytest

from scbroker.errors import BrokerError
from scbroker.records.batch import MAX_SIGNATURE, BatchSignature
from scbroker.records.canonical import decode_object, encode_object
from scbroker.records.judge import Known, verify_author
from scbroker.records.key_record import KeyChain
from tests.kit.cases import in_one_case
from tests.vectors.files import Vector, load, vectors

RECORDS: dict[str, Any] = load("batches")["given"]["records"]


def check(vector: Vector, authors: dict[bytes, KeyChain]) -> None:
    known = Known.parse(bytes.fromhex(RECORDS[vector["record"]]))
    verify_author(known, bytes.fromhex(vector["batchSignature"]), authors[known.record.author])


@in_one_case("vector", vectors("batches", "valid"))
def test_a_valid_signature_of_a_batch_is_accepted(
    vector: Vector, authors: dict[bytes, KeyChain]
) -> None:
    check(vector, authors)
    stored = bytes.fromhex(vector["batchSignature"])
    assert encode_object(decode_object(BatchSignature, stored, MAX_SIGNATURE)) == stored


@in_one_case("vector", vectors("batches", "invalid"))
def test_an_invalid_signature_of_a_batch_is_refused_with_the_error_of_its_vector(
    vector: Vector, authors: dict[bytes, KeyChain]
) -> None:
    with pytest.raises(BrokerError) as caught:
        check(vector, authors)
    assert caught.value.code == vector["error"]
