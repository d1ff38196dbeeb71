"""TLS over any connection of the world: OpenSSL works on two buffers in memory, and never waits.

A handshake is a task of its own, limited in time and in bytes; handshakes make their steps in turn,
and other tasks run in between.  Before each step it looks whether the peer is still there: in a
rush of clients, most of those whose turn comes late have given up, and no other must wait for them.
After the handshake the connection is used as any other.  Records are encrypted in the process, so
`send_file` reads the file instead of calling sendfile.

The connection keeps bytes that are encrypted but not yet taken by the socket.  Until they have
left, each call with the bytes that they came from returns None; then a call returns their number.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import trio

if TYPE_CHECKING:
    from highwater.world.api import Buffer, Connection, File

_READ_BYTES = 65536
_TAKE_BYTES = 131072
"""How much is encrypted by one call of `send` or `send_file`."""
_HANDSHAKE_BYTES = 131072
"""A chain of certificates is some kilobytes; OpenSSL itself takes 100 KiB of them."""
_LOOK_BYTES = 4096
_HANDSHAKE = 0x16


class _Shared:
    """State that all connections of one trio run share; a process may have one run per thread."""

    def __init__(self) -> None:
        self.turn = trio.Lock()
        """Held for one step of a handshake, some of which cost a millisecond."""
        self.scratch = memoryview(bytearray(_READ_BYTES))


_shared = trio.lowlevel.RunVar[_Shared]("shared by TLS connections")


def _shared_of_run() -> _Shared:
    try:
        return _shared.get()
    except LookupError:
        _shared.set(_Shared())
        return _shared.get()


class HandshakeError(ConnectionAbortedError):
    """The handshake failed; the message is the reason, for the log."""


class TlsConnection:
    """One connection; `handshake` first."""

    __slots__ = (
        "_connection",
        "_ended",
        "_filled",
        "_in",
        "_out",
        "_owed",
        "_shared",
        "_ssl",
        "_unsent",
        "local",
        "peer",
        "small_bytes",
    )

    def __init__(
        self,
        connection: Connection,
        context: ssl.SSLContext,
        *,
        server_side: bool,
        host: str | None = None,
    ) -> None:
        """`host`: the name that the server's certificate must have, if the context checks it."""
        self.peer, self.local = connection.peer, connection.local
        self._connection = connection
        self._shared = _shared_of_run()
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = context.wrap_bio(
            self._in, self._out, server_side=server_side, server_hostname=host
        )
        self.small_bytes = connection.small_bytes
        self._unsent = memoryview(b"")
        self._owed = 0
        """The size of what the caller gave last, until all of it has left: only then does `send`
        return this number."""
        self._ended = False
        self._filled = False
        """Whether the last read filled its buffer.  OpenSSL may then hold more bytes, for which the
        socket never becomes readable."""

    @property
    def certificate(self) -> bytes | None:
        """The peer's certificate (DER), if it has shown one."""
        return self._ssl.getpeercert(binary_form=True)

    # --- the handshake

    async def handshake(self, timeout_s: float) -> None:
        """Raises HandshakeError or OSError; the caller closes the connection then."""
        with trio.move_on_after(timeout_s):
            await self._handshake()
            return
        raise HandshakeError(f"the TLS handshake did not end within {timeout_s:g} s")

    async def _handshake(self) -> None:
        received = 0
        while True:
            ended: OSError | None = None
            async with self._shared.turn:
                if received:  # take what came while this one waited: perhaps the peer's end
                    try:
                        received += self._receive(received, _LOOK_BYTES) or 0
                    except OSError as exc:
                        ended = exc  # what came before may be the alert that says why
                done = self._step()
                await trio.lowlevel.checkpoint()
            if ended is not None:
                raise ended
            while not self._push():
                await self._connection.wait_writable()
            if done:
                return
            while (n := self._receive(received, _READ_BYTES)) is None:
                await self._connection.wait_readable()
            received += n

    def _receive(self, received: int, most: int) -> int | None:
        """Takes what the socket holds of a handshake; None where it would block."""
        scratch = self._shared.scratch
        n = self._connection.recv_into(scratch[:most])
        if n is None:
            return None
        if n == 0:
            raise HandshakeError("the peer closed the connection during the TLS handshake")
        if received == 0 and scratch[0] != _HANDSHAKE:
            raise HandshakeError("the peer does not speak TLS; set its security.protocol")
        if received + n > _HANDSHAKE_BYTES:
            raise HandshakeError(f"a TLS handshake of more than {_HANDSHAKE_BYTES} bytes")
        self._in.write(scratch[:n])
        return n

    def _step(self) -> bool:
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as exc:
            self._push()  # the alert, which tells the peer why
            raise HandshakeError(tls_reason(exc)) from exc
        except ssl.CertificateError as exc:
            raise HandshakeError(str(exc)) from exc
        return True

    # --- as any connection

    def recv_into(self, buffer: memoryview) -> int | None:
        """Fills the buffer if it can: fewer bytes mean that the socket has no more."""
        read: Callable[[int, memoryview], int] = cast("Any", self._ssl.read)
        filled, size = 0, len(buffer)
        while filled < size and not self._ended:
            try:
                n = read(size - filled, buffer[filled:])
            except ssl.SSLWantReadError:
                if not self._pull():
                    break
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                self._ended = True
            else:
                filled += n
                self._ended = n == 0
        self._filled = filled == size
        if not self._push() and len(self._unsent) > _TAKE_BYTES * 2:
            raise ConnectionAbortedError("the peer asks for new keys, and does not read them")
        return filled if filled or self._ended else None

    def _pull(self) -> bool:
        """Takes what the socket holds; False where it would block."""
        scratch = self._shared.scratch
        n = self._connection.recv_into(scratch)
        if n is None:
            return False
        if n:
            self._in.write(scratch[:n])
        else:
            self._in.write_eof()
        return True

    def send(self, views: Sequence[Buffer], more: bool = False) -> int | None:
        if not self._owed:
            if not self._push():
                return None
            taken: list[Buffer] = []
            room = _TAKE_BYTES
            for view in views:
                taken.append(memoryview(view)[:room])
                room -= len(taken[-1])
                if room == 0:
                    break
            self._encrypt(taken[0] if len(taken) == 1 else b"".join(taken))
        return self._acknowledge()

    def send_file(self, file: File, position: int, n: int) -> int | None:
        if not self._owed:
            if not self._push():
                return None
            data = file.read_to_send(position, min(n, _TAKE_BYTES))
            if not data:
                return 0
            self._encrypt(data)
        return self._acknowledge()

    def _encrypt(self, data: Buffer) -> None:
        if len(data):
            self._ssl.write(data)
        self._owed = len(data)

    def _acknowledge(self) -> int | None:
        if not self._push():
            return None
        owed, self._owed = self._owed, 0
        return owed

    def _push(self) -> bool:
        """Sends what is encrypted; False where the socket would block."""
        while True:
            if not self._unsent:
                if not self._out.pending:
                    return True
                self._unsent = memoryview(self._out.read())
            n = self._connection.send([self._unsent])
            if n is None:
                return False
            self._unsent = self._unsent[n:]

    async def wait_readable(self) -> None:
        if self._filled:
            self._filled = False
            await trio.lowlevel.checkpoint()
        else:
            await self._connection.wait_readable()

    async def wait_writable(self) -> None:
        await self._connection.wait_writable()

    def close(self) -> None:
        """Tells the peer, if the socket takes it at once."""
        try:
            self._ssl.unwrap()
        except (ssl.SSLError, ValueError):
            pass  # the peer has not said that it closes, too, or there was no handshake
        try:
            self._push()
        except OSError:
            pass
        self._connection.close()


def tls_reason(exc: ssl.SSLError) -> str:
    """The reason of an error, in an operator's words."""
    if isinstance(exc, ssl.SSLCertVerificationError):
        return f"the peer's certificate is not accepted: {exc.verify_message}"
    words = (exc.reason or str(exc)).replace("_", " ").lower()
    return _MEANINGS.get(words, words)


_MEANINGS = {
    "peer did not return a certificate": "the peer showed no certificate, and one is required",
    "tlsv1 alert unknown ca": "the peer does not trust this certificate's authority",
    "sslv3 alert certificate expired": "the peer says that this certificate has expired",
    "sslv3 alert bad certificate": "the peer does not accept this certificate",
    "sslv3 alert certificate unknown": "the peer does not accept this certificate",
    "tlsv1 alert protocol version": "the peer takes no version of TLS that is enabled here",
    "unsupported protocol": "the peer offers no version of TLS in ssl.enabled.protocols",
}
