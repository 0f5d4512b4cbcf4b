"""Each attack in a reader's words: a title, what the attacker does, what stops it. For docs/attacks.md."""

from typing import Final, NamedTuple


class Explanation(NamedTuple):
    title: str
    attack: str
    defence: str


EXPLANATIONS: Final = {
    1: Explanation(
        "The broker serves its own key as Bob's",
        "Alice asks for Bob's public keys. The broker answers with keys whose private half it holds.",
        "A user id is the hash of the first key. Other keys have another id, so the client refuses them.",
    ),
    2: Explanation(
        "The broker replaces a container by one under its own key",
        "The broker serves a container whose key it chose, and waits for a member to write into it.",
        "A container id is bound to its creator, and members sign every change of the key.",
    ),
    3: Explanation(
        "The broker adds a silent recipient",
        "The broker adds a user to the access list before a member writes.",
        "The author signs the whole list. The client compares each entry with it before it wraps a key.",
    ),
    4: Explanation(
        "The broker leaves keys out",
        "The broker serves a user without keys, or a container without its wrap, and hopes that the "
        "client goes on without encryption.",
        "A missing key is an error. The client never invents one and never sends without one.",
    ),
    5: Explanation(
        "Somebody adds keys to Alice's account",
        "The broker, or a thief with a session, publishes other keys for Alice.",
        "At each log-in the client compares the published keys with its KeyRing, one by one.",
    ),
    6: Explanation(
        "A user id is registered again",
        "Somebody registers other keys under a known or a deleted id.",
        "The broker keeps ids for ever. Clients pin the fingerprint that they first verified.",
    ),
    7: Explanation(
        "A key that accepts every signature",
        "A user registers a public key of small order, for which forged signatures verify.",
        "Clients and broker refuse such keys, wherever in a chain they stand.",
    ),
    8: Explanation(
        "A reader writes",
        "A member with read access signs a change, or replaces the bytes of a part whose key they know.",
        "Every reader checks that the author has Upload, and that the bytes are those that were signed.",
    ),
    9: Explanation(
        "A member gives themselves more rights",
        "A member adds permissions, extends an expiry, or changes the list in a renewal.",
        "Nobody gives or takes what they do not hold. Every reader checks this rule.",
    ),
    10: Explanation(
        "Somebody's content appears as another user's",
        "A member or the broker presents a ciphertext under another author's name.",
        "The author is part of what each segment and record is bound to.",
    ),
    11: Explanation(
        "Wraps and parts are replayed elsewhere",
        "The broker serves a wrap, part key or segment from another container, version, role or place.",
        "Each is bound to its place: it opens nowhere else.",
    ),
    12: Explanation(
        "A recipient is swapped while keys change",
        "The broker serves another key for a member when somebody changes or renews access.",
        "Key chains are verified from the user id on. A member who got no key is told so.",
    ),
    13: Explanation(
        "A removed member comes back",
        "The broker hides the removal, or lets a record of the removed member pass as later.",
        "A removal makes a fresh container key, and clients with a mark refuse every older state.",
    ),
    14: Explanation(
        "An expired member goes on",
        "A member reads or writes after their expiry, or ends somebody else's access early.",
        "An expired entry has no rights, and the next write renews the key without it.",
    ),
    15: Explanation(
        "A sender shows two members different things",
        "An author gives members different keys, types, parts or histories.",
        "Records commit to the key and the type; a container has one beginning, signed by its creator.",
    ),
    16: Explanation(
        "Pieces of a content are moved or cut",
        "The broker or the object store reorders, doubles, drops or cuts chunks and segments.",
        "The author signs the hash of every segment, their number and the length.",
    ),
    17: Explanation(
        "A short read passes for the end",
        "A connection or a file stops early, and half a content passes for the whole.",
        "A content is as long as was signed. Anything shorter is an error, and no file is left.",
    ),
    18: Explanation(
        "Plaintext comes out before it is verified",
        "A byte at the end is wrong, and the program has already used the beginning.",
        "A segment is verified whole before any of it is released.",
    ),
    19: Explanation(
        "Parts of different versions are combined",
        "The broker serves the header of one version with the content of another.",
        "A record names both parts by their hashes.",
    ),
    20: Explanation(
        "The broker changes metadata",
        "The broker serves another author, time, type or access list, or another receipt.",
        "All of these are signed. Only events are the broker's word.",
    ),
    21: Explanation(
        "The broker serves an older or another history",
        "The broker goes back to an older state, or shows two devices different histories.",
        "Each device keeps a mark of what it verified, and refuses what does not follow from it.",
    ),
    22: Explanation(
        "A container appears that nobody made",
        "The broker serves a container as Alice's that she never signed, or in the place of another.",
        "Readers verify both halves of every signature, the id, and that the reader is in the list.",
    ),
    23: Explanation(
        "A key or nonce is used twice",
        "The broker refuses writes, so that the client seals again under the same key.",
        "Every attempt has its own keys and salts. A part that was sent is never sealed under another key.",
    ),
    24: Explanation(
        "Ciphertexts give away equality or length",
        "The broker compares stored bytes to find equal contents.",
        "Every sealing is fresh and nothing is compressed. Lengths stay visible.",
    ),
    25: Explanation(
        "The broker weakens the key derivation",
        "The broker or a file asks for a cheaper derivation of keys from passwords.",
        "The format fixes all parameters. A file or an answer with others is refused.",
    ),
    26: Explanation(
        "The broker makes the derivation expensive",
        "A KeyFile asks for gigabytes of memory, or names huge lengths.",
        "Lengths are bounded before anything is derived; the cost is the format's.",
    ),
    27: Explanation(
        "One file tests many passwords at once",
        "The broker serves a file that opens under several passphrases, to rule out many per log-in.",
        "The sealing commits to one key, and all failures look alike.",
    ),
    28: Explanation(
        "The KeyFile is edited",
        "The broker flips bytes of a KeyFile, or joins pieces of two.",
        "Every byte is authenticated, and the two parts are bound to each other.",
    ),
    29: Explanation(
        "An old KeyFile is served",
        "The broker serves a KeyFile from before a change.",
        "A device refuses a lower generation than its mark, and a KeyRing that lacks published keys.",
    ),
    30: Explanation(
        "A thief has an old KeyFile and its passphrase",
        "The thief opens the old keys after the user changed the secrets.",
        "With `compromised=True` new keys replace them: no new wrap goes to the old ones.",
    ),
    31: Explanation(
        "Somebody else's KeyFile is served",
        "The broker serves the file of another user, or a user passes off their KeyRing as another's.",
        "A file is bound to its user id, and a KeyRing to its fingerprint.",
    ),
    32: Explanation(
        "A stolen database is used to log in or to guess",
        "A thief uses the stored verifier as a password, or tries passphrases against it.",
        "The verifier is not what proves a passphrase, and it is under a key outside the database.",
    ),
    33: Explanation(
        "A stranger probes for users and passphrases",
        "A stranger tries ids and passphrases, or guesses so often that the user is locked out.",
        "Answers are alike for known and unknown users; guesses are throttled; a device pass keeps "
        "known devices out of the throttle.",
    ),
    34: Explanation(
        "A reminder gives a secret away",
        "A reminder contains the password, or appears in a log or another answer.",
        "The client refuses a reminder with a secret in it, in any spelling. No log has it.",
    ),
    35: Explanation(
        "The broker makes the client sign something else",
        "A broker sends a record as a challenge, or relays a challenge of another broker.",
        "Each kind of signature has its own label, and a statement names origin, act and nonce.",
    ),
    36: Explanation(
        "A session token is stolen or sent elsewhere",
        "A redirect, a presigned URL or the database gives a thief the token.",
        "Tokens go to the configured broker alone and are stored as hashes. A token alone changes nothing.",
    ),
    37: Explanation(
        "The broker edits the event log",
        "The broker drops, moves or rewrites events.",
        "Ids have no gaps, and a device keeps a digest of what it read.",
    ),
    38: Explanation(
        "A deleted container comes back, or a living one is called deleted",
        "The broker serves a container again after its deletion, or invents a deletion.",
        "A deletion is a signed record whose author had the right; devices keep it for ever.",
    ),
    39: Explanation(
        "The broker asks for an older version",
        "The broker answers with another protocol or format version, or with half of the algorithms.",
        "One version exists, and both halves of every signature are required.",
    ),
    40: Explanation(
        "Malformed or endless input",
        "The broker or a client sends ambiguous, huge or never-ending messages.",
        "Every message has one form and a limit, and reads are bounded.",
    ),
    41: Explanation(
        "Secrets reach the broker or a log",
        "A secret leaves the program in a request, a file, an error or a `repr`.",
        "What leaves is sealed or derived one-way. The tests search for every secret in every spelling.",
    ),
    42: Explanation(
        "The broker adds fields that change behaviour",
        "An answer carries a field for recovery, policy or fallback.",
        "A field that the specification does not name is an error.",
    ),
    43: Explanation(
        "Decrypted data acts as a command",
        "A header or a name contains a path, a URL or control characters.",
        "Decrypted data is never used as a path or an address, and texts of errors are cleaned.",
    ),
}
