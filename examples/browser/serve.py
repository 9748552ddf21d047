"""Serve a folder on this machine, with the headers that let its pages share memory with workers.

Browsers share memory only in pages that are isolated by these headers:
https://developer.mozilla.org/docs/Web/API/Window/crossOriginIsolated
"""

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import click

HEADERS = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
}


class Isolated(SimpleHTTPRequestHandler):
    """Files of a folder, with the headers of an isolated page."""

    def end_headers(self) -> None:
        """Add the headers to every answer."""
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()


def server_of(folder: Path, port: int) -> ThreadingHTTPServer:
    """Return a server on loopback; port 0: any free one."""
    return ThreadingHTTPServer(("127.0.0.1", port), partial(Isolated, directory=str(folder)))


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.option("--port", default=8000, show_default=True)
def main(folder: Path, port: int) -> None:
    """Serve FOLDER until interrupted."""
    try:
        server = server_of(folder, port)
    except OSError as error:
        raise click.ClickException(
            f"port {port}: {error.strerror}; choose another --port"
        ) from error
    click.echo(f"http://localhost:{server.server_port}")
    with server:
        server.serve_forever()


if __name__ == "__main__":
    main()
