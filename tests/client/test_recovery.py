"""docs/guide/recover.md: what each row of its table has leads to the account, or to nothing, as it says."""

from pathlib import Path

import pytest

from scbroker import BrokerError, KeyFile
from tests.client.conftest import refusal
from tests.kit.fixtures import NewProvider
from tests.kit.waiting import PATIENCE


def test_each_row_of_the_table_sets_new_secrets_or_opens_nothing(
    new_provider: NewProvider, tmp_path: Path
) -> None:
    folder = tmp_path / "sessions"
    laptop = new_provider(sessionStore=folder)
    oldest = laptop.register("A password 1", "A passphrase 1", keep=True).result(PATIENCE)
    user = laptop.getUserId().result(PATIENCE)
    laptop.changeCredentials("A password 2", "A passphrase 2").result(PATIENCE)
    laptop.close()

    kept = new_provider(sessionStore=folder)
    kept.resumeSession().result(PATIENCE)
    kept.changeCredentials("A password 3", "A passphrase 3").result(PATIENCE)

    phone = new_provider()
    phone.logIn(user, passphrase="A passphrase 3").result(PATIENCE)
    phone.changeCredentials("A password 4", "A passphrase 4").result(PATIENCE)

    tablet = new_provider()
    tablet.logIn(KeyFile(oldest).open(password="A password 1"), user).result(PATIENCE)
    tablet.changeCredentials("A password 5", "A passphrase 5").result(PATIENCE)
    copy = tablet.getKeyFile("A passphrase 5").result(PATIENCE)

    tablet.deleteKeyFile().result(PATIENCE)
    desk = new_provider()
    refusal(desk.logIn(user, passphrase="A passphrase 5"), BrokerError.credentialsError)
    desk.logIn(KeyFile(copy).open(passphrase="A passphrase 5"), user).result(PATIENCE)
    desk.changeCredentials("A password 6", "A passphrase 6").result(PATIENCE)

    stranger = new_provider()
    refusal(stranger.logIn(user, passphrase="A password 6"), BrokerError.credentialsError)
    with pytest.raises(BrokerError.credentialsError):
        _ = stranger.logIn(user, password="A password 6")
    with pytest.raises(BrokerError.decryptionError):
        KeyFile(copy).open(passphrase="A passphrase 6")
