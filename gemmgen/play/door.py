"""Who may talk to the page: requests whose Host and Origin are this page's own.

A page of another site can send requests to 127.0.0.1, and a name of another site can be made to lead there (DNS
rebinding). Both are refused here, for HTTP and WebSockets alike.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from ipaddress import ip_address
from socket import gethostname
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


ANY_ADDRESS = "any address:"
"""Begins what stands for every address of this machine: a page that is served on all of them."""


def hosts(host: str, port: int) -> frozenset[str]:
    """What a Host header may say. A page on all addresses answers to numbers, localhost and this machine's name: what
    leads here by another name may be another site's."""
    if host in ("0.0.0.0", "::"):
        return frozenset({f"{ANY_ADDRESS}{port}", f"localhost:{port}", f"{gethostname().lower()}:{port}"})
    names = {"127.0.0.1", "localhost", host} if host in ("127.0.0.1", "localhost", "::1") else {host}
    shown = {f"[{name}]" if ":" in name else name for name in names}
    return frozenset(f"{name}:{port}" for name in shown)


def allowed(headers: Iterable[tuple[bytes, bytes]], known: frozenset[str]) -> bool:
    """Whether the Host is one of ``known``, and the Origin, where there is one, is too."""
    said = [(name.lower(), value.decode("latin-1").lower()) for name, value in headers]
    host = [value for name, value in said if name == b"host"]
    origins = [value for name, value in said if name == b"origin"]
    if len(host) != 1 or not _known(host[0], known):
        return False
    return all(o.startswith("http://") and _known(o.removeprefix("http://"), known) for o in origins)


def _known(host: str, known: frozenset[str]) -> bool:
    name, _, port = host.rpartition(":")
    return host in known or (f"{ANY_ADDRESS}{port}" in known and _is_address(name))


def _is_address(name: str) -> bool:
    try:
        ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


class Door:
    """Middleware (ASGI) that refuses all others."""

    def __init__(self, app: App, known: frozenset[str]) -> None:
        self.app = app
        self.known = known

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or allowed(scope["headers"], self.known):
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        else:
            headers = [(b"content-type", b"text/plain")]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body", "body": b"This page answers its own address only.\n"})
