"""How a command over SSH ended, where paramiko does not say: by which signal, or not at all.

SSH reports a signal in an `exit-signal` request, which paramiko 5.1 ignores (its exit status is -1
then). A server may have no name for a signal (dropbear for SIGBUS) and only close the channel; that
must not be taken for a connection that was lost. The table of message handlers extended here is
paramiko's own; each of our entries ends in paramiko's handler.
"""

from typing import Any

import paramiko
from paramiko.common import MSG_CHANNEL_CLOSE, MSG_CHANNEL_REQUEST

UNNAMED = "SIG?"


class EndingTransport(paramiko.Transport):
    """paramiko's transport, which also notes per channel how its command ended."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._signals: dict[int, str] = {}
        self._closed: set[int] = set()
        table: dict[int, Any] = self._channel_handler_table  # type: ignore[has-type]
        own = {MSG_CHANNEL_REQUEST: self._request, MSG_CHANNEL_CLOSE: self._close}
        self._theirs = table
        self._channel_handler_table = {**table, **own}

    def ending(self, channel: paramiko.Channel) -> str | None:
        """Return the signal that ended a channel's command; None when the connection did.

        Only valid for a closed channel without an exit status.
        """
        if channel.chanid in self._signals:
            return self._signals[channel.chanid]
        return UNNAMED if channel.chanid in self._closed else None

    def _request(self, channel: paramiko.Channel, message: paramiko.Message) -> None:
        start = message.packet.tell()
        if message.get_text() == "exit-signal":
            message.get_boolean()  # wants a reply: never, for this request
            # "SEGV", or of a server's own making "BUS@openssh.com".
            self._signals[channel.chanid] = f"SIG{message.get_text().partition('@')[0]}"
        message.packet.seek(start)
        self._theirs[MSG_CHANNEL_REQUEST](channel, message)

    def _close(self, channel: paramiko.Channel, message: paramiko.Message) -> None:
        self._closed.add(channel.chanid)
        self._theirs[MSG_CHANNEL_CLOSE](channel, message)
