"""Move the objects of a plain S3 bucket into encrypted containers.

    python move.py s3://bucket/prefix                 # copy; run it again to go on after an interruption
    python move.py s3://bucket/prefix --delete        # and delete each object once its container was verified

The bucket's address and keys come from AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, as for
other tools of S3. Every address that obstore knows will do, as gs://, az:// and file://.
"""

import argparse
import datetime as dt
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

import obstore
from obstore.store import ObjectStore, from_url

from scbroker import Container, ServerProvider

TYPE = "moved-object"  # the broker can read it
PIECE = 1024 * 1024


@dataclass(frozen=True)
class MovedObject:
    """The header of a container: what the bucket said of the object. The broker cannot read it."""

    key: str
    size: int
    modified: dt.datetime
    e_tag: str | None


@dataclass(frozen=True)
class Move:
    """One run: from a bucket to the containers of the provider's user."""

    bucket: ObjectStore
    provider: ServerProvider
    delete: bool = False

    def run(self) -> Iterator[str]:
        """Move each object that has no container yet; yield a line for each object."""
        done = self._moved()
        for item in self._objects():
            if item in done:
                yield f"{item.key}: was moved before"
            else:
                digest = self._copy(item)
                yield f"{item.key}: {item.size} bytes, SHA-256 {digest[:16]}..."
            if self.delete:
                obstore.delete(self.bucket, item.key)

    def _moved(self) -> set[MovedObject]:
        """Return the headers of all containers that earlier runs made and finished.

        Anybody can share a container that claims to be an object's, so that the object would be deleted.
        """
        own = self.provider.getUserId().result()
        containers = self.provider.iterContainers(TYPE, headerType=MovedObject)
        return {
            each.header.customHeaderObject
            for each in containers
            if isinstance(each, Container)
            and each.header is not None
            and own == each.createdBy == each.modifiedBy
        }

    def _objects(self) -> Iterator[MovedObject]:
        for page in obstore.list(self.bucket):
            for item in sorted(page, key=lambda item: item["path"]):
                yield MovedObject(item["path"], item["size"], item["last_modified"], item["e_tag"])

    def _copy(self, item: MovedObject) -> str:
        """Store an object as a container, read the container back, and return the content's SHA-256.

        The object passes through in pieces, whatever its size. A container appears at once, when all of its
        content is stored: an interrupted copy leaves none.
        """
        sent, received = hashlib.sha256(), hashlib.sha256()

        def pieces() -> Iterator[bytes]:
            for piece in obstore.get(self.bucket, item.key).stream():
                sent.update(piece)
                yield bytes(piece)

        made = self.provider.createContainer(pieces(), item, type=TYPE).result()
        reader = self.provider.openContainerContent(made.id).result()
        if reader is not None:
            with reader:
                while piece := reader.read(PIECE):
                    received.update(piece)
        if received.digest() != sent.digest():
            self.provider.deleteContainer(made.id).result()
            raise SystemExit(
                f"{item.key}: the bucket sent other bytes than were stored. Try again."
            )
        return sent.hexdigest()


def credentials() -> tuple[str, str]:
    """Return user id and passphrase; end the program if any variable that it needs is missing."""
    names = ("SERVER_URL", "API_KEY", "APPLICATION_NAME", "USER_ID", "PASSPHRASE")
    missing = [f"SCBROKER_{each}" for each in names if not os.environ.get(f"SCBROKER_{each}")]
    if missing:
        raise SystemExit(f"Set {', '.join(missing)} in the environment.")
    return os.environ["SCBROKER_USER_ID"], os.environ["SCBROKER_PASSPHRASE"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("bucket", help="the bucket's address, as s3://bucket/prefix")
    parser.add_argument("--delete", action="store_true", help="delete each object that was moved")
    arguments = parser.parse_args()
    user, passphrase = credentials()
    bucket = from_url(arguments.bucket)
    with ServerProvider.fromEnvironment() as provider:
        provider.logIn(user, passphrase=passphrase).result()
        for line in Move(bucket, provider, arguments.delete).run():
            print(line)


if __name__ == "__main__":
    main()
