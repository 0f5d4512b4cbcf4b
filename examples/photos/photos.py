"""Share a folder of photos: everybody in the circle puts photos in, and gets those of all others.

python photos.py card Alice                          # what the others need of you
python photos.py put holiday scbroker-contact:...    # share all photos of a folder
python photos.py get album                           # fetch all photos that you have access to
"""

import argparse
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from scbroker import (
    AccessLevel,
    BrokerError,
    ContactCard,
    Container,
    ContainerAccessLevel,
    NewContainer,
    ServerProvider,
)

TYPE = "photo"  # the broker can read it
SUFFIXES = {".jpeg", ".jpg", ".png", ".webp"}


@dataclass
class Photo:
    """The header of a photo's container; encrypted like the photo."""

    name: str


def put(provider: ServerProvider, folder: Path, circle: Sequence[ContactCard]) -> Iterator[str]:
    """Upload the photos of a folder and share them with the circle; yield a line for each.

    The client compares the whole fingerprint of each card with the keys that the broker serves.
    """
    me = provider.getUserId().result()
    access = [
        AccessLevel(me, ContainerAccessLevel.DefaultOwnerPermissions),
        *(AccessLevel(card) for card in circle),
    ]
    files = sorted(each for each in folder.iterdir() if each.suffix.lower() in SUFFIXES)
    photos = (NewContainer(file, Photo(file.name), access, TYPE) for file in files)
    for file, made in zip(files, provider.createContainers(photos).result(), strict=True):
        yield f"{file.name}: {made if isinstance(made, BrokerError) else 'shared'}"


def get(provider: ServerProvider, folder: Path) -> Iterator[str]:
    """Save the photos that the folder lacks; yield a line for each."""
    folder.mkdir(exist_ok=True)
    for photo in provider.iterContainers(TYPE, headerType=Photo):
        if not isinstance(photo, Container):  # cannot be verified, or its header is not a Photo
            yield f"{photo.containerId}: {photo}"
        elif photo.header is not None:
            path = folder / file_name(photo.header.customHeaderObject.name, photo)
            if not path.exists():
                try:
                    provider.saveContainerContent(photo.id, path).result()
                    yield f"{path.name}: from {photo.contentBy}"
                except BrokerError as error:  # of this photo: the others are fetched
                    yield f"{path.name}: {error}"


def file_name(name: str, photo: Container[Photo]) -> str:
    """Return a file name for a photo whose name somebody else chose: nothing that leads elsewhere.

    The container's id makes it unique. A file name has at most 255 bytes, a letter up to 4.
    """
    given = PurePath(name)
    suffix = given.suffix.lower() if given.suffix.lower() in SUFFIXES else ".jpg"
    stem = re.sub(r"[^\w-]+", "_", given.stem)[:40]
    return f"{stem}-{photo.id.hex[-8:]}{suffix}"


def run(provider: ServerProvider, arguments: argparse.Namespace) -> Iterator[str]:
    if arguments.command == "card":
        yield provider.getContactCard(arguments.name).result().text
    elif arguments.command == "put":
        circle = [ContactCard.parse(text) for text in arguments.card]
        yield from put(provider, arguments.folder, circle)
    else:
        yield from get(provider, arguments.folder)


def credentials() -> tuple[str, str]:
    """Return user id and passphrase; end the program if any variable that it needs is missing."""
    names = ("SERVER_URL", "API_KEY", "APPLICATION_NAME", "USER_ID", "PASSPHRASE")
    missing = [f"SCBROKER_{each}" for each in names if not os.environ.get(f"SCBROKER_{each}")]
    if missing:
        raise SystemExit(f"Set {', '.join(missing)} in the environment.")
    return os.environ["SCBROKER_USER_ID"], os.environ["SCBROKER_PASSPHRASE"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("card").add_argument("name")
    for command in ("put", "get"):
        commands.add_parser(command).add_argument("folder", type=Path)
    commands.choices["put"].add_argument("card", nargs="+")
    arguments = parser.parse_args()
    user, passphrase = credentials()
    with ServerProvider.fromEnvironment() as provider:
        provider.logIn(user, passphrase=passphrase).result()
        for line in run(provider, arguments):
            print(line)


if __name__ == "__main__":
    main()
