"""``gemmgen play``: a page to edit a spec and see its kernel."""

from __future__ import annotations

from typing import Annotated

import typer

from gemmgen.cli import exits, output
from gemmgen.cli.completion import complete_spec
from gemmgen.cli.options import SPEC_HELP, Set
from gemmgen.cli.specs import STDIN, find_spec, load_specs

LOCAL = ("127.0.0.1", "localhost", "::1")
PORT = 8642


def play(
    spec: Annotated[
        str | None,
        typer.Argument(
            metavar="[SPEC]",
            help=f"{SPEC_HELP} Default: regblock2d.",
            autocompletion=complete_spec,
            show_default=False,
        ),
    ] = None,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Port of the page.")] = PORT,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Address to bind to.")] = "127.0.0.1",
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Open no browser.")] = False,
    settings: Set = None,
) -> int:
    """Serve a local page: edit a spec, and see its CUDA, pictures and counts as you type.

    Tabs show the CUDA with changed lines marked, the tile program, pictures, counts and what limits the kernel,
    registers and SASS, the difference from a pinned spec, and a run in the simulator. No network and no GPU are
    needed. Examples:

      gemmgen play

      gemmgen play specs/warptile.gemm --port 9000 --no-browser
    """
    from gemmgen.play import require

    text = text_of(spec or "regblock2d", settings or [])
    require()
    refuse_taken(host, port)
    from gemmgen.play.page import serve

    shown = f"[{host}]" if ":" in host else host
    if host not in LOCAL:
        output.say(f"warning: --host {host} lets others on your network use this page and this machine's time")
    output.say(f"gemmgen play: http://{shown}:{port} (Ctrl-C ends it)")
    serve(text, host, port, not no_browser)
    return exits.OK


def text_of(argument: str, settings: list[str]) -> str:
    """The text to start with: that of a file as it is, be it a legal spec or not; else that of the spec it makes."""
    if argument == STDIN or settings:
        [spec] = load_specs([argument], settings)
        return spec.to_text()
    return find_spec(argument).read_text(encoding="utf-8", errors="replace")


def refuse_taken(host: str, port: int) -> None:
    """Raises UsageError where the port cannot be bound."""
    import socket

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise exits.UsageError(f"{host}:{port} cannot be used: {reason}; choose another --port") from error
