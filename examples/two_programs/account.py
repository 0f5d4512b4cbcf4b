"""Open the account that a folder has; at the first start, register a new user and save its KeyFile."""

from getpass import getpass
from pathlib import Path

from scbroker import BrokerError, KeyFile, ServerProvider


def provider_in(folder: Path) -> ServerProvider:
    """Return a provider with a session of the folder's user.

    The session is kept in the folder, so that later starts need no secret. On a machine with a keychain,
    leave `sessionStore` out: the key of the session is in the keychain then.
    """
    provider = ServerProvider.fromEnvironment(sessionStore=folder / "session")
    saved = folder / "account.keyfile"
    try:
        provider.resumeSession().result()
    except BrokerError.notAuthenticatedError:  # no session is kept here, or it has ended
        if saved.exists():
            user = KeyFile(saved.read_bytes()).userId
            provider.logIn(user, passphrase=getpass("Passphrase: "), keep=True).result()
        else:
            folder.mkdir(parents=True, exist_ok=True)
            password, passphrase = getpass("New password: "), getpass("New passphrase: ")
            saved.write_bytes(provider.register(password, passphrase, keep=True).result())
    return provider
