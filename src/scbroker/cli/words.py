"""Say the library's messages in the words of the command line.

The library speaks to programmers: its messages name parameters and operations. A person at the command line
needs the option or the command instead.
"""

import re
from typing import Final

from scbroker import errors
from scbroker.extras import install

_FOLDER: Final = (
    "pass --session-folder FOLDER to `scbroker register`, `login` or `ui`: the key is in a file then, and "
    "anybody who can read this folder has the account"
)
_PHRASES: Final = (
    (rf"run {re.escape(install('keychain'))}, or", f"run `{install('cli')}`, or"),
    (r"pass sessionStore= the path of a folder, in which the key is kept in a file", _FOLDER),
    (r"or pass another sessionStore", "or choose another with --session-folder"),
    (r"or pass another trustStore", "or choose another with --trust-folder"),
    (r"call register, logIn or resumeSession first", "run `scbroker login`"),
    (r"log in with keep=True", "run `scbroker login`"),
    (r"log in without keep=True", "choose a folder for it with --session-folder"),
    (r"log in with the new passphrase( and keep=True| first)?",
     "run `scbroker login` with the new passphrase"),
    (r"apiKey must be a UUID or its text, and this \S+ is not",
     "The API key must be a UUID, and the given one is not"),
    (r"pass ssl=ssl\.create_default_context\(cafile=\.\.\.\)",
     "set SSL_CERT_FILE to a file with the authority's certificate"),
    (r"^serverUrl (?=must|redirects)", "The broker's address "),
    # A name that a person typed stands in quotes.
    (r"(?<!['\w.])serverUrl(?!['\w]|\.\w)", "the broker's address"),
    (r"^startId (?=must)", "--since "),
    (r"^name (?=must)", "--name "),
    (r"^reminder (?=must)", "--reminder "),
    (r"^passphrase must (differ from|be)", r"The passphrase must \1"),
    (r"^password must be", "The password must be"),
    (r'give another reminder, or "" to remove it',
     "pass another with --reminder, or --reminder '' to remove it"),
    (r"give the bytes that createOrUpdateKeyFile or changeCredentials gave last, or use changeCredentials",
     "import a newer file, or run `scbroker change-credentials`"),
    (r"add the person's card first",
     "add the person's card with `scbroker contacts add` (the person's `scbroker whoami` shows it)"),
    (r"remove the user from accessLevels", "leave this person out"),
    (r"remove the group from accessLevels", "leave the group out"),
    (r"delete (it|the container) with deleteContainer", r"delete \1 with `scbroker rm`"),
    (r"ContactCard.parse and `scbroker card` read it", "`scbroker card` shows it"),
    (r"openLink and `scbroker open` open it", "`scbroker open` opens it"),
    (r"rename that contact instead", "`scbroker contacts rename` gives this contact another name"),
    (r"if they are two people, pass another name", "if they are two people, pass another one with --name"),
    (r"resetEventMark(?= accepts)", "`scbroker mark events`"),
    (r"resetContainerMark(?= accepts)", "`scbroker mark container`"),
    (r"pass abandon=True", "pass --abandon"),
    (r"getLinks lists your links", "`scbroker links` lists your links"),
    (r"^link is not a link from createLink, which contains (\S+):",
     r"This is not a link, because it lacks \1:"),
    (r"^name of a link", "--name of a link"),
    (r"^newName (?=must)", "The new name "),
)  # fmt: skip
_OF_GROUPS: Final = {
    "acceptGroup": "groups accept",
    "addGroupMembers": "groups add",
    "confirmAccess": "mark access",
    "deleteGroup": "groups rm",
    "leaveGroup": "groups leave",
    "renewGroup": "groups renew",
    "replaceGroup": "groups replace",
    "setGroupManagers": "groups managers",
    "setGroupRoles": "groups role",
}
"""Operations that the library's messages name, and the commands that the command line names instead."""
_REPLACEMENTS: Final = (
    *((re.compile(phrase), words) for phrase, words in _PHRASES),
    *(
        (re.compile(rf"call {name}\b"), f"run `scbroker {words}`")
        for name, words in _OF_GROUPS.items()
    ),
    *((re.compile(rf"\b{name}\b"), f"`scbroker {words}`") for name, words in _OF_GROUPS.items()),
)


def with_request(error: errors.BrokerError) -> str:
    """Return an error's message; if the broker failed, with the id by which its log has the request."""
    is_of_broker = isinstance(error, errors.BrokerFaultError | errors.OverloadedError)
    if error.requestId is None or not is_of_broker:
        return error.message
    return f"{error.message} (request {error.requestId})"


def with_message(error: errors.BrokerError, text: str) -> errors.BrokerError:
    """Return a copy of an error with another message."""
    changed = error.fresh()
    changed.args = (text,)
    return changed


def in_words(message: str) -> str:
    """Return a message with the library's terms replaced by options and commands."""
    for phrase, words in _REPLACEMENTS:
        message = phrase.sub(words, message)
    return message
