"""Define the commands of a user's keys, secrets and KeyFile."""

import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Annotated

import typer

from scbroker import errors
from scbroker.cli.command import ACCOUNT, Run, Yes, command, group
from scbroker.cli.commands.account import parsed_user
from scbroker.cli.files import new_file
from scbroker.cli.names import PERSON
from scbroker.cli.output import fields_of
from scbroker.cli.secrets import (
    NewPassphraseFile,
    NewPasswordFile,
    PassphraseFile,
    PasswordFile,
    key_file_of,
    secret,
)

key_file: typer.Typer = group("key-file", ACCOUNT, "Save, store or delete your encrypted keys.")
Reminder = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="A hint at the passphrase. Everybody with the API key can read it. '' removes the stored one; "
        "without the option it stays.",
    ),
]
KeyFileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="A KeyFile from `scbroker key-file export`.")
]


@command(ACCOUNT)
def keys(run: Run, person: Annotated[str | None, PERSON] = None) -> None:
    """Show a person's public keys, or your own.

    The fingerprint is that of the user, and the same for all keys: compare it with the person. Retired keys
    only verify and open what was written before.
    """
    user = None if person is None else run.people.find(person).who
    found = run.session.getPublicKeys(user).result()
    names = ("userId", "fingerprint", "keyType", "index", "active", "createdAt", "retiredAt")
    rows = [fields_of(each, *names) for each in found]
    if found and not run.out.as_json:
        run.out.say(f"User {found[0].userId}, fingerprint {found[0].fingerprint}")
    columns = {
        "keyType": "type",
        "index": "index",
        "active": "active",
        "createdAt": "created",
        "retiredAt": "retired",
    }
    run.out.rows(rows, columns)


@command(ACCOUNT)
def rotate(
    run: Run,
    reminder: Reminder = None,
    new_password_file: NewPasswordFile = None,
    new_passphrase_file: NewPassphraseFile = None,
) -> None:
    """Replace your keys, password and passphrase.

    Run this after you lost a device, or if somebody may know a secret. Every other device has to log in
    with the new passphrase. The old keys do not open what you write from now on, nor what other members
    write once their devices have seen the change.

    The old keys still open what was written before: write it again if they may have been stolen.

    The command does not help if somebody has the private keys themselves, from a device that was logged in
    and unlocked or from a session folder, because your user id belongs to the first key. Then register a new
    user, share your containers with it, and tell the people who share with you.
    """
    _change(run, reminder, new_password_file, new_passphrase_file, compromised=True)
    run.out.say("Log in on your other devices again by `scbroker login`, with the new passphrase.")
    run.out.say(
        "The old keys still open what was written before: write it again if it must stay secret."
    )
    run.out.say(
        "Earlier copies of your KeyFile are out of date: `scbroker key-file export` saves another."
    )


@command(ACCOUNT, "change-credentials")
def change_credentials(
    run: Run,
    reminder: Reminder = None,
    new_password_file: NewPasswordFile = None,
    new_passphrase_file: NewPassphraseFile = None,
) -> None:
    """Choose another password and passphrase.

    The keys stay the same, and other devices stay logged in.

    If somebody else may have a secret or a device, run `scbroker rotate` instead. Earlier copies of your
    KeyFile still open with the old secrets.
    """
    _change(run, reminder, new_password_file, new_passphrase_file, compromised=False)


def _change(
    run: Run,
    reminder: str | None,
    password_file: Path | None,
    passphrase_file: Path | None,
    *,
    compromised: bool,
) -> None:
    session, user_id = run.session, run.profile.user_id
    password = secret("new password", password_file, new=True)
    passphrase = secret("new passphrase", passphrase_file, new=True)
    if compromised:  # with the present passphrase a thief would open the new KeyFile as well
        with suppress(errors.CredentialsError):
            session.getKeyFile(passphrase).result()
            raise errors.InvalidArgumentError(
                "The new passphrase is the present one, with which a thief could fetch the new keys: choose "
                "another one."
            )
    try:
        session.changeCredentials(password, passphrase, reminder, compromised=compromised).result()
    except errors.BrokerUnavailableError as error:
        if error.outcome is errors.WriteOutcome.Uncertain:
            error.args = (
                f"{error} Either the old or the new secrets are valid now: try the new ones first.",
            )
        raise
    what = "Keys, password and passphrase" if compromised else "Password and passphrase"
    run.out.done(
        {"userId": user_id, "keysReplaced": compromised}, f"{what} of user {user_id} are replaced."
    )


@command(ACCOUNT)
def reminder(
    run: Run,
    user: Annotated[
        str | None,
        typer.Argument(
            metavar="USER", help="A user id or contact card; by default the profile's user."
        ),
    ] = None,
) -> None:
    """Show the reminder of a user's passphrase.

    The broker stores it in clear text, and everybody with the API key can read it. `scbroker
    change-credentials --reminder` changes it. The command needs no session.
    """
    profile = run.profile
    user_id = profile.user_id if user is None else parsed_user(user)[1]
    found = run.provider(profile).getReminder(user_id).result()
    if found or run.out.as_json:
        run.out.line({"userId": user_id, "reminder": found}, found)
    else:
        run.out.say(f"The broker stores no reminder for user {user_id}.")


@command(name="export", of=key_file)
def export_key_file(
    run: Run,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A new file; `-` writes to standard output.")
    ],
    passphrase_file: PassphraseFile = None,
) -> None:
    """Save a copy of your encrypted keys.

    The copy is called a KeyFile, and opens with the password or the passphrase. If you forget the passphrase,
    or if the broker loses the keys, `scbroker login --key-file FILE` logs in with it. Save a new copy after
    `scbroker rotate` and `scbroker change-credentials`.
    """

    to_stdout = str(file) == "-"
    if to_stdout and sys.stdout.isatty():
        raise errors.InvalidArgumentError(
            "A KeyFile is binary, and a terminal could act on it: name a file, or use a pipe."
        )
    with nullcontext(sys.stdout.buffer) if to_stdout else new_file(file) as opened:
        opened.write(run.session.getKeyFile(secret("passphrase", passphrase_file)).result())
    if not to_stdout:
        run.out.done(
            {"userId": run.profile.user_id, "path": str(file)},
            f"The KeyFile is in {file}: keep it apart from the password.",
        )


@command(name="import", of=key_file)
def import_key_file(
    run: Run,
    file: KeyFileArgument,
    reminder: Reminder = None,
    password_file: PasswordFile = None,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Store a saved copy at the broker again.

    This is for a broker without your KeyFile, such as after `scbroker key-file delete`. The password must
    open the file. The passphrase logs you in from now on, and may be a new one. To log in with a KeyFile, run
    `scbroker login --key-file FILE`.
    """

    given, user_id = key_file_of(file), run.profile.user_id
    if given.userId != user_id:
        raise errors.InvalidArgumentError(
            f"{file} is the KeyFile of user {given.userId}, and profile {run.profile.name} belongs to "
            f"user {user_id}: choose the profile of that user with --profile."
        )
    session = run.session
    password = secret("password", password_file)
    passphrase = secret("passphrase", passphrase_file, new=True)
    stored = session.createOrUpdateKeyFile(given, password, passphrase, reminder).result()
    run.out.done(
        {"userId": user_id, "changed": stored != given},
        f"The broker stores the KeyFile of user {user_id}.",
    )
    if stored != given:
        run.out.say(
            f"Its passphrase is not that of {file}, which is out of date: `scbroker key-file export` saves "
            "a new copy."
        )


@command(name="delete", of=key_file)
def delete_key_file(run: Run, yes: Yes = False) -> None:
    """Delete the encrypted keys and the reminder from the broker.

    Nobody can log in with the passphrase then. Kept sessions go on. `scbroker key-file import` and `scbroker
    change-credentials` store a KeyFile again.
    """
    user_id, session = run.profile.user_id, run.session
    run.confirm(
        f"Delete the KeyFile of user {user_id} from the broker? Without a copy (`scbroker key-file export`) "
        "you lose the account if this device is lost.",
        yes,
    )
    session.deleteKeyFile().result()
    run.out.done({"userId": user_id}, f"The broker stores no KeyFile of user {user_id} any more.")
