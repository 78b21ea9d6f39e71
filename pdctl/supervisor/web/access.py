"""Who may read the pages: on loopback everybody of this machine, elsewhere whoever has the page token.

A browser brings the token once as ?token=…, and from then on a cookie that is made of it and is not it.
Programs send Authorization: Bearer … as to engines.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "pdctl_page"
OPEN = "/healthz"  # says nothing of the fleet
_MONTH = 30 * 86400
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


def is_loopback(host: str) -> bool:
    """Whether `host`, an address or a name, is this machine to itself alone."""
    if host.lower() in ("localhost", "localhost.localdomain"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Access:
    """`token` None: loopback alone, where a page of another site may still send a browser here under a name
    of its own (DNS rebinding); so the name that was asked for must be loopback's too.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app, self._token = app, token
        self._cookie = hashlib.sha256(f"pdctl page {token}".encode()).hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = self._refusal(Request(scope))

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await (answer or self._app)(scope, receive, guarded)

    def _refusal(self, request: Request) -> Response | None:
        """What is answered instead; None when the request may be served."""
        if self._token is None:
            if is_loopback(_name(request.headers.get("host", ""))):
                return None
            return PlainTextResponse("These pages are for this machine: ask for 127.0.0.1.\n", 403)
        if request.url.path == OPEN:
            return None
        given = request.query_params.get("token")
        if given is not None:
            return self._let_in(request) if _same(given, self._token) else _unknown()
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _same(bearer.strip(), self._token):
            return None
        return None if _same(request.cookies.get(COOKIE, ""), self._cookie) else _unknown()

    def _let_in(self, request: Request) -> Response:
        """The same page without the token in its address, which would stay in a browser's history."""
        kept = [pair for pair in parse_qsl(request.url.query) if pair[0] != "token"]
        path = request.url.path + (f"?{urlencode(kept)}" if kept else "")
        answer = RedirectResponse("/" + path.lstrip("/"), 303)
        answer.set_cookie(COOKIE, self._cookie, _MONTH, httponly=True, samesite="strict")
        return answer


def _unknown() -> Response:
    return PlainTextResponse(
        "These pages need the page token: open /?token=TOKEN once, or send Authorization: Bearer TOKEN. It is"
        " the file .pdctl/page-token beside the fleet file.\n",
        401,
        {"WWW-Authenticate": "Bearer"},
    )


def _name(host: str) -> str:
    """A Host header without its port; "" when it is none."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), wanted.encode())
