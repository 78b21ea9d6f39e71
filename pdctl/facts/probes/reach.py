"""Host tool: whether this host reaches addresses, and an ear for the hosts that should reach this one.

`listen` answers every TCP connection with its nonce, so that a caller knows that it came to this very
host and not to itself or to a stranger, and echoes UDP datagrams, so that a caller can learn how large a
packet the path carries unfragmented.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import threading
import time
from typing import Any

from pdctl.facts.probes.ports import bind_error, connected, family_of

# Linux socket options that the socket module has no names for.
IP_MTU_DISCOVER, IPV6_MTU_DISCOVER, PMTUDISC_PROBE = 10, 23, 3
RETRY = 0.05
ECHO_TIMEOUT = 0.25
ECHO_TRIES = 4
HEAD = 4


def _tcp(address: str, port: int, ears: dict[Any, str], errors: dict[str, str]) -> None:
    error = bind_error(address, port)
    if not error:
        try:
            ear = socket.create_server((address, port), family=socket.AddressFamily(family_of(address)))
            ears[ear] = "tcp"
            return
        except OSError as raised:
            error = os.strerror(raised.errno or 0)
    errors[f"{address}:{port}"] = error


def _datagram(address: str) -> socket.socket:
    """A UDP socket that never fragments and ignores what the kernel believes of the path."""
    udp = socket.socket(family_of(address), socket.SOCK_DGRAM)
    if udp.family == socket.AF_INET6:
        udp.setsockopt(socket.IPPROTO_IPV6, IPV6_MTU_DISCOVER, PMTUDISC_PROBE)
    else:
        udp.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, PMTUDISC_PROBE)
    return udp


def listen(
    nonce: str, tcp: list[list[Any]], udp: list[list[Any]], seconds: float, visits: int
) -> dict[str, Any]:
    """Serve for `seconds`, or until `visits` visitors have said goodbye (a TCP line "bye").

    {errors: {"address:port": why it could not listen}, visits}
    """
    ears: dict[Any, str] = {}
    errors: dict[str, str] = {}
    for address, port in tcp:
        _tcp(address, port, ears, errors)
    for address, port in udp:
        ear = _datagram(address)
        try:
            ear.bind((address, port))
            ears[ear] = "udp"
        except OSError as error:
            errors[f"{address}:{port}/udp"] = os.strerror(error.errno or 0)
    end, left = time.monotonic() + seconds, visits
    while ears and left > 0 and time.monotonic() < end:
        for ear in select.select(list(ears), [], [], 0.1)[0]:
            try:
                left -= _echo(ear) if ears[ear] == "udp" else _greet(ear, nonce)
            except OSError:
                continue  # that visitor went away
    for ear in ears:
        ear.close()
    return {"errors": errors, "visits": visits - left}


def _greet(ear: socket.socket, nonce: str) -> int:
    """1 when the visitor says goodbye."""
    visitor, _ = ear.accept()
    with visitor:
        visitor.settimeout(1.0)
        visitor.sendall(nonce.encode() + b"\n")
        return int(visitor.recv(16).strip() == b"bye")


def _echo(ear: socket.socket) -> int:
    """A datagram's first bytes say how large the answer shall be."""
    data, visitor = ear.recvfrom(65535)
    size = int.from_bytes(data[:HEAD], "big")
    try:
        ear.sendto(data[:HEAD].ljust(size, b"\0"), visitor)
    except OSError as error:
        if error.errno != errno.EMSGSIZE:
            raise
        ear.sendto(b"\0" * HEAD, visitor)  # this host's own interface cannot carry it
    return 0


def probe_reach(targets: list[dict[str, Any]], goodbye: list[list[Any]], seconds: float) -> dict[str, Any]:
    """Every target at once; "address:port" -> {error ("" when reached), seconds, path}.

    A target is {address, port}, with nonce: of the one who must answer; path: [payload there, payload back];
    gently: a connection that this host has already is proof enough, so that the peer is not disturbed.
    `goodbye` has [address, ports] of the ears that may stop listening to this host.
    """
    found: dict[str, Any] = {}

    def one(target: dict[str, Any]) -> None:
        found[f"{target['address']}:{target['port']}"] = _reach(target, seconds)

    threads = [threading.Thread(target=one, args=(t,), daemon=True) for t in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    end = time.monotonic() + seconds
    for address, ports in goodbye:
        while not any(_say_bye(address, port) for port in ports) and time.monotonic() < end:
            time.sleep(RETRY)  # an ear may still be on its way up
    return found


def _say_bye(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), 0.5) as ear:
            ear.sendall(b"bye\n")
            return bool(ear.recv(64))
    except OSError:
        return False


def _reach(target: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Connect until it works or `seconds` are over; a refusal is final when nobody is about to listen."""
    begin = time.monotonic()
    nonce = target.get("nonce", "")
    if target.get("gently") and connected(target["address"], target["port"]):
        return {"error": "", "seconds": 0.0}
    while True:
        left = begin + seconds - time.monotonic()
        error = _connect(target["address"], target["port"], nonce, max(left, 0.1))
        took = time.monotonic() - begin
        if not error or took + RETRY >= seconds or not (nonce and error == "refused"):
            break
        time.sleep(RETRY)
    result: dict[str, Any] = {"error": error, "seconds": took}
    if not error and target.get("path"):
        there, back = target["path"]
        result["path"] = {
            "small": _exchange(target, HEAD, HEAD),
            "there": _exchange(target, there, HEAD),
            "back": _exchange(target, HEAD, back),
        }
    return result


def _connect(address: str, port: int, nonce: str, seconds: float) -> str:
    """Why `address:port` was not reached; "" when it was, and by the nonce's owner where one is given."""
    try:
        with socket.create_connection((address, port), seconds) as sock:
            if not nonce:
                return ""
            said = sock.recv(64).decode("utf-8", "replace").strip()
    except ConnectionRefusedError:
        return "refused"
    except socket.timeout:  # noqa: UP041 - another class before Python 3.10
        return "no answer"
    except socket.gaierror as error:
        return f"the name has no address: {error.strerror}"
    except OSError as error:
        return os.strerror(error.errno or 0)
    return "" if said == nonce else "somebody else answers there"


def _exchange(target: dict[str, Any], send: int, want: int) -> bool:
    """Whether a payload of `send` bytes arrives there and one of `want` bytes comes back, both whole."""
    with _datagram(target["address"]) as udp:
        udp.settimeout(ECHO_TIMEOUT)
        udp.connect((target["address"], target["port"]))
        for _ in range(ECHO_TRIES):
            try:
                udp.send(want.to_bytes(HEAD, "big").ljust(send, b"\0"))
                if len(udp.recv(65535)) == want:
                    return True
            except OSError:
                continue  # lost, refused, or larger than the interface carries
    return False
