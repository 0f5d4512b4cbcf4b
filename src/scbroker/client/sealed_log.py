"""The format of append-only files on a device: frames, each authenticated together with all before it.

The trust store's marks and the journals of transfers are such files. A frame is the length of its entry, a
MAC of the length, the entry, and a MAC of the entry; each MAC covers the MAC of the frame before it. A change
anywhere is noticed. A frame that a crash cut off is told from a changed one by the MAC of its length.
"""

from collections.abc import Iterator
from typing import Final

from scbroker.crypto.verify import equal, keyed_hash

_LENGTH: Final = 4
_MAC: Final = 32
HEAD: Final = _LENGTH + _MAC


class DamagedLogError(Exception):
    """The file has other bytes than were written, or was written under another key."""


class SealedLog:
    """A position in a log: how much of the file was verified or written, and the last MAC."""

    def __init__(self, secret: bytes, label: str, magic: bytes) -> None:
        self._secret, self._label = secret, label
        self.magic: bytes = magic
        """The first bytes of the file."""
        self.mac: bytes = self._keyed("start", magic)
        """The MAC of everything up to this position."""
        self.size: int = 0
        """Bytes of the file up to this position."""
        self.count: int = 0
        """Entries up to this position."""

    def replay(self, data: bytes) -> Iterator[bytes]:
        """Yield the entries in `data`, which are the file's bytes from this position on.

        Stops before a frame that a crash cut off. Raises `DamagedLogError` at any other fault.
        """
        position = 0
        if self.size == 0:
            if not data.startswith(self.magic):
                raise DamagedLogError
            self.size = position = len(self.magic)
        while (end := self._frame_end(data, position)) is not None:
            entry, mac = data[position + HEAD : end - _MAC], data[end - _MAC : end]
            if not equal(self._keyed("entry", self.mac, entry), mac):
                raise DamagedLogError
            self._advance(mac, end - position)
            position = end
            yield entry

    def append(self, entry: bytes) -> bytes:
        """Return the frame of a further entry, and move behind it: the caller writes it at `size`."""
        length = len(entry).to_bytes(_LENGTH, "big")
        mac = self._keyed("entry", self.mac, entry)
        frame = length + self._keyed("length", self.mac, length) + entry + mac
        self._advance(mac, len(frame))
        return frame

    def start(self) -> bytes:
        """Return the first bytes of a new file, and move behind them."""
        self.size = len(self.magic)
        return self.magic

    @property
    def last_bytes(self) -> bytes:
        """Return the last bytes of the file up to this position, by which another file is noticed."""
        return self.mac if self.count else self.magic[: self.size]

    def _advance(self, mac: bytes, size: int) -> None:
        self.mac = mac
        self.size += size
        self.count += 1

    def _frame_end(self, data: bytes, position: int) -> int | None:
        """Return where a frame ends; None at the end of the file, or if a crash cut the frame off.

        After a power cut a file may have its new length, and zeros instead of the bytes.
        """
        if len(data) - position < HEAD:
            return None
        length = data[position : position + _LENGTH]
        mac = data[position + _LENGTH : position + HEAD]
        if not equal(self._keyed("length", self.mac, length), mac):
            if not any(data[position:]):
                return None
            raise DamagedLogError
        end = position + HEAD + int.from_bytes(length, "big") + _MAC
        return end if end <= len(data) else None

    def _keyed(self, name: str, *parts: bytes) -> bytes:
        return keyed_hash(self._secret, f"{self._label}-{name}", *parts)
