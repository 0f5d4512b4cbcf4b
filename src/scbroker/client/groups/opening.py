"""A group as one of its members sees it: verified, with its info and keys opened.

Spec: docs/spec/groups.md, sections 3 and 4.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from scbroker.client.core import group_keys
from scbroker.client.core.judging import Unwrap
from scbroker.crypto.seal import DecryptionKey
from scbroker.errors import BrokerError, DecryptionError, IntegrityError
from scbroker.records.container_record import Via
from scbroker.records.group import GroupChain
from scbroker.records.roster import Info, Member, SaltedMember


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Roll:
    """The members of a group of the session's user, judged (C7 to C10) and not opened. Immutable."""

    group_id: uuid.UUID
    fingerprint: bytes
    """That of the session's user, who is a member."""
    chain: GroupChain
    leaves: Sequence[SaltedMember]
    """Ascending by fingerprint."""
    members: Mapping[bytes, Member]
    """By fingerprint, in the order of `leaves`. Users who have left are among them."""
    left: frozenset[bytes]
    """Fingerprints of members whose departure from this roster is verified."""
    owed: frozenset[bytes]
    """Fingerprints of members for whom an epoch is owed (3.5); known to a manager alone."""
    deleted: frozenset[bytes]
    """Fingerprints of those for whom an epoch is owed because their user was deleted."""
    unproved: frozenset[bytes]
    """Those of the deleted ones of whom the broker alone says it: their key chain is not closed."""
    accepted: bool
    """Whether the user has accepted the group: the broker's word."""
    sealed_info: bytes
    wrap: bytes | None
    """The user's own, of the secret of the epoch in force."""

    @property
    def name(self) -> bytes:
        return self.chain.name

    @property
    def epoch(self) -> int:
        return self.chain.roster.epoch

    @property
    def role(self) -> int:
        """Return the role of the session's user, a `GroupRole`."""
        return self.members[self.fingerprint].role

    @property
    def is_manager(self) -> bool:
        return self.fingerprint in self.chain.managers

    @property
    def is_owner(self) -> bool:
        return self.chain.is_owner(self.fingerprint)

    @property
    def via(self) -> Via:
        """Return what a record names that the user makes through this group now."""
        known = self.chain.in_force.known
        return Via(self.chain.name, self.epoch, known.record.version, known.hash)


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class OpenGroup(Roll):
    """A group of the session's user with its info and its secrets. Immutable."""

    info: Info
    secrets: Mapping[int, bytes]
    """By epoch: those to which the epochs' rosters commit, as far as the user has them."""
    _keys: dict[int, DecryptionKey] = field(default_factory=dict)

    @property
    def has_all_secrets_in_info(self) -> bool:
        """Return whether the info lacks none of the secrets that the user has (3.4)."""
        return all(
            self.secrets.get(epoch) in (None, secret)
            for epoch, secret in enumerate(self.info.secrets)
        )

    def key(self, epoch: int) -> DecryptionKey:
        """Return the group's private key of an epoch.

        Raises `IntegrityError` for an epoch that does not exist, and where a manager handed on no secret, or
        a wrong one.
        """
        if epoch not in self._keys:
            secret = self.secrets.get(epoch)
            if secret is None:
                raise IntegrityError(
                    f"The group has no epoch {epoch}."
                    if epoch > self.epoch
                    else f"A manager of the group left out the secret of epoch {epoch}, or gave a wrong "
                    "one: have a manager who has it rename the group, which hands it on."
                )
            signed = self.chain.keys[epoch]
            self._keys[epoch] = group_keys.checked_key(self.name, epoch, secret, signed)
        return self._keys[epoch]


Kept = Callable[[int], tuple[int, bytes] | None]
"""Return key index and wrap of an earlier epoch that this device has opened."""


def open_group(roll: Roll, unwrap: Unwrap, kept: Kept) -> OpenGroup:
    """Open the wrap, the info and the secrets of a group (section 4, *opening*)."""
    if roll.wrap is None:
        raise DecryptionError(
            "No manager has given you the key of this group's present epoch: ask one to add you again."
        )
    chain, epoch = roll.chain, roll.epoch
    own = roll.members[roll.fingerprint]
    signed = chain.keys[epoch]
    secret, key = group_keys.open_secret(chain.name, epoch, signed, own, roll.wrap, unwrap)
    info = group_keys.open_info(chain.name, epoch, chain.roster.info, secret, roll.sealed_info)
    secrets = _secrets(roll, info, unwrap, kept)
    return _with_info(roll, info, {**secrets, epoch: secret}, {epoch: key})


def without_info(roll: Roll, unwrap: Unwrap, kept: Kept) -> OpenGroup:
    """Return a group whose info does not open, with the earlier secrets that are kept here."""
    info = Info("", "", [None] * roll.epoch)
    return _with_info(roll, info, _secrets(roll, info, unwrap, kept), {})


def _with_info(
    roll: Roll, info: Info, secrets: Mapping[int, bytes], keys: dict[int, DecryptionKey]
) -> OpenGroup:
    known = {name: getattr(roll, name) for name in Roll.__slots__}
    return OpenGroup(**known, info=info, secrets=secrets, _keys=keys)


def _secrets(roll: Roll, info: Info, unwrap: Unwrap, kept: Kept) -> dict[int, bytes]:
    """Return the earlier secrets of the info, and in place of missing or wrong ones those kept here."""
    found: dict[int, bytes] = {}
    for epoch, secret in enumerate(info.secrets):
        signed = roll.chain.keys[epoch]
        if secret is not None and group_keys.is_committed(roll.name, epoch, secret, signed):
            found[epoch] = secret
        elif (wrapped := kept(epoch)) is not None:
            member = Member(roll.fingerprint, wrapped[0], 0, 1)
            try:
                found[epoch], _ = group_keys.open_secret(
                    roll.name, epoch, signed, member, wrapped[1], unwrap
                )
            except BrokerError:
                continue  # it was made for a key that this KeyRing does not have any more
    return found
