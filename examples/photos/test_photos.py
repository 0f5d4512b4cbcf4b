"""The photo folder, with a real broker: `scbroker_broker` is the fixture of scbroker's pytest plugin."""

from pathlib import Path

import pytest

from examples.photos import photos
from scbroker import AccessLevel, ContactCard, ServerProvider
from scbroker.testing import LocalBroker


@pytest.fixture(scope="module")
def alice(scbroker_broker: LocalBroker) -> ServerProvider:
    return scbroker_broker.new_user()


@pytest.fixture(scope="module")
def bob(scbroker_broker: LocalBroker) -> ServerProvider:
    return scbroker_broker.new_user()


@pytest.fixture
def holiday(tmp_path: Path) -> Path:
    folder = tmp_path / "holiday"
    folder.mkdir()
    (folder / "lake.jpg").write_bytes(b"the lake" * 50_000)
    (folder / "tent.png").write_bytes(b"the tent")
    (folder / "diary.txt").write_text("not a photo")
    return folder


def card_of(provider: ServerProvider) -> ContactCard:
    return provider.getContactCard("somebody").result()


def test_everybody_in_the_circle_gets_the_photos_and_nobody_else_does(
    scbroker_broker: LocalBroker,
    alice: ServerProvider,
    bob: ServerProvider,
    holiday: Path,
    tmp_path: Path,
) -> None:
    said = list(photos.put(alice, holiday, [card_of(bob)]))
    assert said == ["lake.jpg: shared", "tent.png: shared"]

    assert len(list(photos.get(bob, tmp_path / "album"))) == 2
    got = {path.name[:4]: path.read_bytes() for path in (tmp_path / "album").iterdir()}
    assert got == {"lake": b"the lake" * 50_000, "tent": b"the tent"}
    assert list(photos.get(bob, tmp_path / "album")) == []

    carol = scbroker_broker.new_user()
    assert list(photos.get(carol, tmp_path / "nothing")) == []


def test_a_name_that_leads_out_of_the_folder_stays_in_it(
    alice: ServerProvider, tmp_path: Path
) -> None:
    for name in ("../../evil.png", "/etc/passwd", "..", "a\x1b[31m.jpg", ".jpg", "𠀀" * 99):
        alice.createContainer(b"x", photos.Photo(name), type=photos.TYPE).result()
    album = tmp_path / "inner" / "album"
    album.parent.mkdir()
    saved = list(photos.get(alice, album))
    assert len(saved) == len(list(album.iterdir()))
    assert [path.name for path in (tmp_path / "inner").iterdir()] == ["album"]
    assert all(path.name.isprintable() for path in album.iterdir())


def test_a_photo_that_cannot_be_fetched_does_not_keep_the_others_away(
    scbroker_broker: LocalBroker, tmp_path: Path
) -> None:
    """Bob stops sharing one while Alice is fetching."""
    alice, bob = scbroker_broker.new_user(), scbroker_broker.new_user()
    circle = [AccessLevel(bob.getUserId().result(), 511), AccessLevel(card_of(alice))]
    shared = [
        bob.createContainer(b"x", photos.Photo("a.jpg"), circle, photos.TYPE).result().id
        for _ in range(3)
    ]
    first, *_, last = sorted(shared)
    said = photos.get(alice, tmp_path)
    next(said)
    bob.deleteContainer(next(each for each in sorted(shared) if each not in (first, last))).result()
    assert ["from" in line for line in said] == [False, True]
