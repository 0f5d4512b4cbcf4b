"""Define the commands of a user's account, profiles and page."""

from __future__ import annotations

import contextlib
import getpass
import os
import sys
import uuid
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

import scbroker  # lazy: each name is imported at its first use, so that commands start quickly
from scbroker import errors
from scbroker.cli import profiles, sentence
from scbroker.cli.command import (
    ACCOUNT,
    CONTAINERS,
    Minutes,
    Opens,
    Port,
    Run,
    Yes,
    command,
    group,
    listing,
)
from scbroker.cli.commands.contacts import Svg, show_card
from scbroker.cli.output import Size
from scbroker.cli.profiles import Profile
from scbroker.cli.secrets import ApiKeyFile, PassphraseFile, PasswordFile, key_file_of, secret

_LOG_OUT_SECONDS: Final = 10.0
Server = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="The broker's address, such as https://broker.example. Without it, SCBROKER_SERVER_URL is "
        "used, or you are asked.",
    ),
]
CardName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Your name on your contact card. Without it, you are asked; without a terminal it is your login "
        "name on this machine.",
    ),
]
SessionFolder = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER",
        help="Keep the session in this folder instead of the system's keychain. Anybody who can read the "
        "folder has the account: use it on an encrypted disk, and leave it out of backups.",
    ),
]
TrustFolder = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER",
        help="Keep in this folder what this device has verified, instead of the system's state folder.",
    ),
]


@command(ACCOUNT)
def register(
    run: Run,
    name: CardName = None,
    server: Server = None,
    api_key_file: ApiKeyFile = None,
    reminder: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="A hint at the passphrase. Everybody with the API key can read it."
        ),
    ] = None,
    password_file: PasswordFile = None,
    passphrase_file: PassphraseFile = None,
    session_folder: SessionFolder = None,
    trust_folder: TrustFolder = None,
) -> None:
    """Make a new user at a broker, and log in.

    The broker's operator gives you its address and an API key. You choose a password and a passphrase. Each
    needs at least 8 characters of 3 kinds: lower case, upper case, digits, others. The passphrase logs you in
    on other devices; the password opens saved copies of your keys (`scbroker key-file`). The
    operator cannot reset them; a device that is logged in can, with `scbroker change-credentials`.

    The broker and the user are saved as a profile: `default`, or the name that --profile gives.
    """
    folders = folders_of(session_folder, trust_folder)
    new = profiles.new_name(run.profile_name)
    profiles.check_device(*folders)
    draft = profiles.Profile(
        name=new,
        server_url=_server(run, server),
        api_key=secret("API key", api_key_file),
        fingerprint=profiles.UNKNOWN,
        card_name=_card_name(run, name),
        session_folder=folders[0],
        trust_folder=folders[1],
    )
    provider = run.provider(draft)
    password = secret("password", password_file, new=True)
    passphrase = secret("passphrase", passphrase_file, new=True)
    not_kept: errors.SessionStoreError | None = None
    try:
        provider.register(password, passphrase, reminder, keep=True).result()
    except errors.SessionStoreError as error:
        if error.outcome is not errors.WriteOutcome.Stored:
            raise
        not_kept = error
    profile = with_user(draft, provider)
    try:
        profiles.save(profile)
    except errors.BrokerError as error:
        raise errors.BrokerError(
            f"User {profile.user_id} is registered, but the profile could not be saved. {error} Then run "
            f"`{profile.command(f'login {profile.card}')}`."
        ) from None
    _show_new_session(run, profile)
    if not_kept is not None:
        raise not_kept
    run.out.say(
        "`scbroker whoami` shows your contact card: send it to the people who are to share with you. "
        "`scbroker put FILE` stores a file."
    )
    run.out.say(
        "Keep password and passphrase safe: the operator cannot reset them; a device that is logged in can. "
        "`scbroker key-file export FILE` saves an encrypted copy of your keys."
    )


@command(ACCOUNT)
def login(
    run: Run,
    user: Annotated[
        str | None,
        typer.Argument(
            metavar="USER", help="Your user id or contact card; by default the profile's user."
        ),
    ] = None,
    key_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A copy of your encrypted keys from `scbroker key-file export`: for a log-in without the "
            "passphrase, or at a broker that has lost them. It opens with the password; with "
            "--passphrase-file, with the passphrase.",
        ),
    ] = None,
    name: CardName = None,
    server: Server = None,
    api_key_file: ApiKeyFile = None,
    password_file: PasswordFile = None,
    passphrase_file: PassphraseFile = None,
    session_folder: SessionFolder = None,
    trust_folder: TrustFolder = None,
) -> None:
    """Log in on this device, and keep the session.

    The first log-in on a device saves a profile. It needs your user id or contact card, which `scbroker
    whoami` shows on another device; the card gives your name and the broker's address as well.

    A later log-in to a profile needs nothing but the passphrase, such as after `scbroker logout`, or after
    `scbroker rotate` on another device. It must be of the profile's user and broker. --api-key-file,
    --session-folder, --trust-folder and --name replace what the profile has.
    """
    from scbroker.cli.names import tell_offers

    folders = folders_of(session_folder, trust_folder)
    stored = profiles.find(run.profile_name)
    saved = (None, None) if stored is None else (stored.session_folder, stored.trust_folder)
    profiles.check_device(folders[0] or saved[0], folders[1] or saved[1])
    given = None if key_file is None else key_file_of(key_file)
    card, user_id = whom(run, user, stored, given)
    if stored is None:
        draft = profiles.Profile(
            name=profiles.new_name(run.profile_name),
            server_url=server or (card.serverUrl if card else _server(run, None)),
            api_key=secret("API key", api_key_file),
            fingerprint=profiles.UNKNOWN,
            card_name=name or (card.name if card else _card_name(run, None)),
        )
    else:
        _check_same(stored, user_id, server or (card.serverUrl if card else None))
        api_key = None if api_key_file is None else secret("API key", api_key_file)
        draft = profiles.changed(stored, api_key=api_key, card_name=name)
    draft = profiles.changed(draft, session_folder=folders[0], trust_folder=folders[1])
    provider = run.provider(draft)
    # Show the address before secrets are typed: it may come from a contact card that somebody else made.
    if stored is None:
        run.out.say(f"Logging in as user {user_id} at {provider.serverUrl}.")
    if given is None:
        log_in(provider, user_id, secret("passphrase", passphrase_file))
    else:
        # A KeyFile opens with the passphrase if --passphrase-file is given, otherwise with the password.
        what, file = ("password", password_file)
        if passphrase_file is not None:
            what, file = ("passphrase", passphrase_file)
        try:
            ring = given.open(**{what: secret(what, file)})
        except errors.DecryptionError:
            raise errors.CredentialsError(
                f"The {what} does not open the KeyFile, or the file is damaged."
            ) from None
        provider.logIn(ring, ring.userId, keep=True).result()
    profile = with_user(draft, provider)
    if profile != stored:
        profiles.save(profile, replace=stored is not None)
    _show_new_session(run, profile)
    run.use(provider)
    tell_offers(run)


@command(ACCOUNT)
def logout(run: Run) -> None:
    """End the session on this device.

    The keys are removed from this device; the profile stays. `scbroker login` logs in again.
    """
    profile = run.profile
    provider = run.provider(profile)
    if profile.user_id not in provider.getKeptSessions().result():
        run.out.done(
            {"profile": profile.name, "userId": profile.user_id, "brokerNotified": False},
            f"Profile {profile.name} has no session on this device.",
        )
        return
    try:
        notified = notify(run, provider, profile.user_id)
    finally:  # remove the keys even after an error of the broker, or Ctrl-C
        provider.forgetKeptSession(profile.user_id).result()
    run.out.done(
        {"profile": profile.name, "userId": profile.user_id, "brokerNotified": notified},
        f"Logged out on this device: run `{profile.command('login')}` to log in again.",
    )


@command(ACCOUNT)
def whoami(
    run: Run,
    svg: Svg = None,
    usage: Annotated[
        bool, typer.Option("--usage", help="Show also how much you store, and your quotas.")
    ] = False,
) -> None:
    """Show your user id, fingerprint and contact card.

    Give the card or its QR code to people who are to share containers with you. It contains no secret. The
    command needs no network, except with --usage.
    """
    more: dict[str, Any] = {"profile": run.profile.name}
    if usage:
        found = run.session.getUsage().result()
        for size, number in (
            ("bytes", "containers"),
            ("quotaBytes", "quotaContainers"),
            ("freeBytes", "freeContainers"),
        ):
            more |= {size: Size.of(getattr(found, size)), number: getattr(found, number)}
    show_card(run, run.profile.card, svg, more)


@command(ACCOUNT, "delete-account")
def delete_account(run: Run, yes: Yes = False) -> None:
    """Delete your user and its data for ever.

    Containers that nobody else has access to are deleted. Containers that others have access to stay,
    with what you wrote in them. The user id can never be registered again. The profile is removed too.
    """
    profile, session = run.profile, run.session
    if not yes:
        question = (
            f"Delete user {profile.user_id} ({profile.card_name}) of {profile.server_url} for ever, with all "
            "containers that nobody else has access to?"
        )
        typed = run.ask(f"{question} Type the user id", f"{question} Pass --yes to confirm.")
        if typed.lower() != str(profile.user_id):
            run.stop()
    left: errors.BrokerError | None = None
    try:
        session.deleteUser().result()
    except errors.SessionStoreError as error:
        if error.outcome is not errors.WriteOutcome.Stored:
            raise
        left = error
    try:
        profiles.remove(profile.name)
    except errors.BrokerError as error:
        left = error
    run.out.done(
        {"profile": profile.name, "userId": profile.user_id},
        f"User {profile.user_id} of {profile.server_url} is deleted.",
    )
    if left is not None:
        raise errors.BrokerError(f"Data of the deleted user is left on this device. {left}")


def _server(run: Run, given: str | None) -> str:
    return (
        given
        or os.environ.get("SCBROKER_SERVER_URL")
        or run.ask(
            "Address of the broker, such as https://broker.example",
            "The broker's address is missing: pass --server, set SCBROKER_SERVER_URL, or run the command in "
            "a terminal.",
        )
    )


def _card_name(run: Run, given: str | None) -> str:
    if given is not None:
        return given
    try:
        own = getpass.getuser()
    except (KeyError, OSError):  # the system has no name for its user
        own = None
    if own is not None and not sys.stdin.isatty():
        return own
    missing = "Your name for the contact card is missing: pass --name."
    return run.ask("Your name, for your contact card", missing, own)


def folders_of(*options: str | None) -> list[str | None]:
    """Return options' folders as absolute paths, since the profile is used from any folder."""
    if "" in options:  # Path("") would be the current folder
        raise errors.InvalidArgumentError("--session-folder or --trust-folder is empty.")
    return [each and str(Path(each).expanduser().absolute()) for each in options]


def whom(
    run: Run, user: str | None, stored: Profile | None, key_file: scbroker.KeyFile | None
) -> tuple[scbroker.ContactCard | None, uuid.UUID]:
    """Return the card, if one is given, and the id of the user who logs in."""
    if user is None and key_file is not None:
        return None, key_file.userId
    if user is None and stored is not None:
        return None, stored.user_id
    if user is None:
        user = run.ask(
            "Your user id or contact card",
            "The user is missing: run `scbroker login USER` with the user id or contact card that "
            "`scbroker whoami` shows on another device.",
        )
    card, user_id = parsed_user(user)
    if key_file is not None and key_file.userId != user_id:
        raise errors.InvalidArgumentError(
            f"The KeyFile is that of user {key_file.userId}, not of {user_id}."
        )
    return card, user_id


def parsed_user(text: str) -> tuple[scbroker.ContactCard | None, uuid.UUID]:
    """Return the card, if it is one, and the user id of a text."""
    from scbroker.cli.names import CARD_PREFIX

    if text.strip().lower().startswith(CARD_PREFIX):
        card = scbroker.ContactCard.parse(text)
        return card, card.userId
    try:
        return None, uuid.UUID(text.strip())
    except ValueError:
        raise errors.InvalidArgumentError(
            "USER is neither a user id nor a contact card: `scbroker whoami` shows yours on another device, "
            "and `scbroker contacts show` those of a contact."
        ) from None


def _check_same(stored: Profile, user_id: uuid.UUID, server: str | None) -> None:
    """Raise `InvalidArgumentError` unless a log-in is for the profile's user and broker."""
    if user_id != stored.user_id:
        raise errors.InvalidArgumentError(
            f"Profile {stored.name} belongs to user {stored.user_id}: choose another name with --profile to "
            f"log in as {user_id}."
        )
    if server is not None and server.rstrip("/") != stored.server_url.rstrip("/"):
        raise errors.InvalidArgumentError(
            f"Profile {stored.name} is for the broker {stored.server_url}, not {server}: choose another name "
            f"with --profile. If the broker has moved, correct server_url in {profiles.path()}."
        )


def log_in(provider: scbroker.ServerProvider, user_id: uuid.UUID, passphrase: str) -> None:
    try:
        provider.logIn(user_id, passphrase=passphrase, keep=True).result()
    except errors.CredentialsError as error:
        reminder = None
        with contextlib.suppress(errors.BrokerError):
            reminder = provider.getReminder(user_id).result()
        hint = f" The reminder that the broker stores for you: {reminder!r}." if reminder else ""
        raise errors.CredentialsError(f"{error}{hint}") from None


def notify(run: Run, provider: scbroker.ServerProvider, user_id: uuid.UUID) -> bool:
    """Log out at the broker; return whether it answered in time."""
    resumed = provider.resumeSession(user_id)
    try:
        resumed.result(_LOG_OUT_SECONDS)
        provider.logout().result(_LOG_OUT_SECONDS)
        return True
    except errors.BrokerError as error:
        run.out.say(f"The broker was not notified: {sentence(error)}")
    except TimeoutError:
        resumed.cancel()
        run.out.say("The broker was not notified: it does not answer.")
    return False


def with_user(draft: Profile, provider: scbroker.ServerProvider) -> Profile:
    """Return the profile of the provider's user, with the broker's address as the provider writes it."""
    ring = provider.getKeyRing().result()
    return profiles.changed(draft, fingerprint=ring.fingerprint, server_url=provider.serverUrl)


def _show_new_session(run: Run, profile: Profile) -> None:
    run.out.fields(
        {
            "profile": profile.name,
            "userId": profile.user_id,
            "fingerprint": profile.card.fingerprint,
            "name": profile.card_name,
            "serverUrl": profile.server_url,
        }
    )


of_profiles: typer.Typer = group("profiles", ACCOUNT, "List, choose and remove profiles.")
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of a profile.")]


@listing(of=of_profiles)
def list_profiles(run: Run) -> None:
    """List the profiles of this device, and whether a session of each is kept here."""
    file = profiles.read()
    rows = [
        {
            "profile": name,
            "default": name == file.default,
            "userId": each.user_id,
            "name": each.card_name,
            "serverUrl": each.server_url,
            "sessionKept": _is_kept(run, each),
        }
        for name, each in sorted(file.profiles.items())
    ]
    columns = {
        "profile": "profile",
        "default": "default",
        "userId": "user",
        "name": "name",
        "serverUrl": "broker",
        "sessionKept": "session",
    }
    run.out.rows(rows, columns)
    if not rows:
        run.out.say(
            f"{profiles.path()} has no profile yet: run `scbroker register` or `scbroker login`."
        )


def _is_kept(run: Run, profile: Profile) -> bool | None:
    """Return whether a session is kept on this device; warn and return None if that cannot be read."""
    try:
        with run.provider(profile) as provider:
            return profile.user_id in provider.getKeptSessions().result()
    except errors.BrokerError as error:
        run.failed(profile.name, error)
        return None


@command(of=of_profiles)
def use(run: Run, name: NameArgument) -> None:
    """Make a profile the default one."""
    profiles.use(name)
    run.out.done({"profile": name}, f"Commands without --profile use {name} now.")


@command(of=of_profiles)
def rm(run: Run, name: NameArgument, yes: Yes = False) -> None:
    """Remove a profile and its session from this device.

    The user stays at the broker. Note the user id before: `scbroker login USER` logs in again.
    """
    profile = profiles.load(name)
    run.confirm(
        f"Remove profile {name} and its session from this device? User {profile.user_id} stays at "
        f"{profile.server_url}, and can log in with the passphrase.",
        yes,
    )
    run.provider(profile).forgetKeptSession(profile.user_id).result()
    profiles.remove(name)
    run.out.done(
        {"profile": name, "userId": profile.user_id},
        f"Profile {name} is removed. User {profile.user_id} stays at {profile.server_url}.",
    )


@command(CONTAINERS)
def ui(
    run: Run,
    port: Port = 0,
    minutes: Minutes = 480,
    lock: Annotated[
        float,
        typer.Option(
            metavar="N", help="Minutes without use after which the page locks itself.", min=0.01
        ),
    ] = 15,
    opens: Opens = True,
    session_folder: SessionFolder = None,
    trust_folder: TrustFolder = None,
) -> None:
    """Show your containers in your browser, until Ctrl-C.

    The page listens on this machine only, and your keys stay in this process. Its URL is secret and valid
    once: the first browser that uses it is the only one that is admitted. After a while without use the page
    locks itself, and asks for your passphrase.
    """
    import asyncio

    from scbroker.cli.ui.page import users_page
    from scbroker.cli.ui.session import Session
    from scbroker.cli.web import serving

    folders = folders_of(session_folder, trust_folder)
    # Without a profile, check the folders now: the page would fail only after asking for every secret.
    if profiles.find(run.profile_name) is None:
        profiles.check_device(*folders)

    async def show() -> None:
        session = Session(
            run.profile_name, lock * 60, session_folder=folders[0], trust_folder=folders[1]
        )
        async with session.running():
            page = partial(users_page, session)
            await serving.run(run.out, port, minutes, opens, page)

    asyncio.run(show())
