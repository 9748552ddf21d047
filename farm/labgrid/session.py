"""A connection to labgrid's coordinator for synchronous code: runs an event loop in a thread.

labgrid's own client session maintains the list of places and resources; requests use its gRPC
stubs, as `labgrid-client` does.
"""

import asyncio
import logging
import threading
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pockengine.errors import FarmError
from pockengine.extras import pip_command

T = TypeVar("T")
DEFAULT_PORT = 20408
CALL_TIMEOUT_S = 30.0
CHANNEL = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.keepalive_time_ms", 7500),  # detects a lost coordinator
    ("grpc.keepalive_timeout_ms", 10000),
    ("grpc.http2.max_pings_without_data", 0),
]


def coordinator_of(url: str) -> str:
    """Return host:port of labgrid://host:port; FarmError for anything else."""
    parts = urlsplit(url)
    try:
        port = parts.port or DEFAULT_PORT
    except ValueError:
        port = 0
    plain = parts.path in ("", "/") and not parts.query and parts.username is None
    if parts.scheme != "labgrid" or not parts.hostname or not plain or not port:
        raise FarmError(f"not a pool: {url!r}; give labgrid://host or labgrid://host:port")
    return f"{parts.hostname}:{port}"


class LabgridSession:
    """An open session; places are acquired as the user `name`, "host/user"."""

    def __init__(self, address: str, host: str, user: str) -> None:
        """Connect; FarmError if labgrid is not installed or the coordinator does not answer."""
        try:
            import grpc
            from labgrid.remote.generated import labgrid_coordinator_pb2
        except ImportError as error:
            raise FarmError(f"no labgrid: {error}; {pip_command('pool')}") from None
        self.messages = labgrid_coordinator_pb2
        self.name = f"{host}/{user}"
        self._address = address
        self._rpc_error = grpc.aio.AioRpcError
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        logging.getLogger("root").setLevel(logging.CRITICAL)  # logs the errors that we raise

        async def start() -> Any:
            session = _client_session(address, host, user)(address, self._loop)
            await session.start()
            return session

        try:
            self._session = self.do(start())
        except BaseException:
            self._end_loop()
            raise

    @property
    def places(self) -> Mapping[str, Any]:
        """The coordinator's places, by name."""
        return dict(self._session.places)

    def service(self, place: Any) -> Mapping[str, Any] | None:
        """Return the parameters of a place's NetworkService; None if it currently has none."""
        for exporter, groups in dict(self._session.resources).items():
            for group, resources in dict(groups).items():
                for name, resource in dict(resources).items():
                    path = (exporter, group, resource.cls, name)
                    if resource.cls == "NetworkService" and place.hasmatch(path) and resource.avail:
                        return dict(resource.params)
        return None

    def call(self, method: str, request: Any) -> Any:
        """Call the coordinator; FarmError with its error message."""
        return self.do(self._call(method, request))

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the session's loop."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(CALL_TIMEOUT_S)
        except TimeoutError:
            future.cancel()
            raise FarmError(f"labgrid's coordinator {self._address} does not answer") from None
        except FarmError:
            raise
        except Exception as error:
            raise FarmError(f"labgrid's coordinator {self._address}: {error}") from None

    def close(self) -> None:
        """End the session without releasing places."""

        async def stop() -> None:
            await self._session.stop()
            await self._session.close()

        try:
            self.do(stop())
        finally:
            self._end_loop()

    async def _call(self, method: str, request: Any) -> Any:
        try:
            response = await getattr(self._session.stub, method)(request)
            await self._session.sync_with_coordinator()
        except self._rpc_error as error:
            raise FarmError(f"labgrid's coordinator: {error.details()}") from None
        return response

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)


def _client_session(address: str, host: str, user: str) -> type[Any]:
    """Return a labgrid client session with its own name and connection."""
    import grpc
    from labgrid.remote.client import ClientSession
    from labgrid.remote.generated import labgrid_coordinator_pb2_grpc

    class Named(ClientSession):  # type: ignore[misc]
        def __attrs_post_init__(self) -> None:
            super().__attrs_post_init__()
            # the coordinator identifies clients by connection, which gRPC would share
            self.channel = grpc.aio.insecure_channel(address, CHANNEL)
            self.stub = labgrid_coordinator_pb2_grpc.CoordinatorStub(self.channel)

        def gethostname(self) -> str:
            return host

        def getuser(self) -> str:
            return user

    return Named
