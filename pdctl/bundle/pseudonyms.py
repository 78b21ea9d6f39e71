"""Names out of a bundle: the same name is the same pseudonym in every document; pure.

Hosts, addresses, the fleet, models and users get other names. Engines that are called by their role keep
their names, because rules and people read them; others are called by their role and a number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from pdctl.bundle.documents import Documents
from pdctl.bundle.manifest import FLEET, MANIFEST, FleetPage, read_fleet, read_manifest
from pdctl.facts.missing import known

_ROLE = re.compile(r"^(?:prefill|decode|router|engine|p|d)[-_]?\d*$")
_IPV4 = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.]*\d)")
_IPV6 = re.compile(
    r"(?<![\w:.])(?:[0-9a-fA-F]{1,4}:){4,7}[0-9a-fA-F]{1,4}(?![\w:])|(?<![\w:])fe80::[0-9a-fA-F:]+"
)
_HOME = re.compile(r"/(?:home|Users|export/home)/(?P<user>[A-Za-z0-9_.-]+)")
_LOGIN = r"(?<![\w.@:/-])(?P<user>[a-z_][\w.-]{{1,31}})@(?:(?:\d{{1,3}}\.){{3}}\d{{1,3}}|{hosts})(?![\w.-]*@)"
# Who holds the fleet's lock: a login and the machine that pdctl runs on, which is no host of the fleet.
_HOLDER = re.compile(r"^\S+@\S+")
# Of no host: this machine, all interfaces, SGLang's rooms without a transfer.
_NOBODY = re.compile(r"127\.|0\.0\.0\.0$|255\.|2\.2\.2\.2$")
_MODEL = re.compile(
    r'(?:--model(?:-path)?|--served-model-name)[ =](\S+)|"(?:model_path|served_model_name)": ?"([^"]+)"'
)
# An environment of Python that an engine runs from; the system's own is nobody's.
_PYTHON = re.compile(r"(?<![\w./-])(?!/usr/)((?:/[\w.@+-]+)+?)/(?:bin/python|lib/python3)")
_SHORT = 3  # characters; a shorter name would be found inside other words
_COMMON = ("local", "root", "main", "localhost", "demo", "model")


@dataclass(frozen=True)
class Private:
    """Names that only the fleet file and this machine know: logins, what pdctl dials (an alias, a name),
    models, and folders (of the fleet file, of releases and logs on hosts, of caches).
    """

    users: tuple[str, ...] = ()
    dialled: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


def pseudonymous(documents: Documents, private: Private = Private()) -> Documents:
    """The same bundle under other names."""
    page = read_fleet(documents.texts[FLEET])
    names = _names(page, documents.texts, private)
    addresses = _addresses(page, documents.texts.values())
    whole = "|".join(re.escape(n) for n in sorted(names, key=len, reverse=True))
    by_name = re.compile(rf"(?<![A-Za-z0-9])(?:{whole})(?![A-Za-z0-9])") if whole else None

    def told(text: str) -> str:
        text = _IPV4.sub(lambda m: addresses.get(m[0], m[0]), text)
        text = _IPV6.sub(lambda m: addresses.get(m[0], m[0]), text)
        return by_name.sub(lambda m: names[m[0]], text) if by_name else text

    texts = {told(path): told(text) for path, text in documents.texts.items()}
    manifest = replace(read_manifest(texts[MANIFEST]), pseudonyms=True)
    if known(manifest.run):
        manifest = replace(manifest, run=_HOLDER.sub("operator@machine", manifest.run))
    return Documents(told(documents.name), texts | {MANIFEST: manifest.to_json()})


def _names(page: FleetPage, texts: Mapping[str, str], private: Private) -> dict[str, str]:
    found: dict[str, str] = {}

    def name(real: str, kind: str, first: int = 1) -> None:
        taken = sum(value.startswith(f"{kind}-") for value in found.values())
        if len(real) >= _SHORT and real not in found and real not in _COMMON:
            found[real] = f"{kind}-{first + taken}"

    for host in page.hosts:
        name(host, "host")
    for address in page.hosts.values():
        if not _IPV4.fullmatch(address):
            name(address, "address")
    name(page.fleet, "fleet")
    kept = {m.name for m in page.members if _ROLE.match(m.name)}
    for member in page.members:
        if member.name not in kept:
            name(member.name, f"{member.server.role}-x")
        if member.cell:
            name(member.cell, "cell")
    said = {word for text in texts.values() for pair in _MODEL.findall(text) for word in pair if word}
    for model in [*private.models, *sorted(said)]:
        name(model, "/models/model" if model.startswith("/") else "model")
    pythons = {found for text in texts.values() for found in _PYTHON.findall(text)}
    for folder in [*private.folders, *sorted(pythons)]:
        if folder.count("/") > 1:  # /opt is nobody's
            name(folder.rstrip("/"), "/folders/folder")
    for dialled in private.dialled:
        name(dialled.rpartition("@")[2], "host")
    for user in [*private.users, *(d.rpartition("@")[0] for d in private.dialled), *_users(page, texts)]:
        name(user, "user")
    return {real: other for real, other in found.items() if real not in kept}


def _users(page: FleetPage, texts: Mapping[str, str]) -> list[str]:
    """Owners of home folders and of listening sockets, and logins before a machine (user@host), which a
    version of something (name@v1) is not.
    """
    hosts = "|".join(re.escape(h) for h in {*page.hosts, *page.hosts.values()} if h)
    forms = (_HOME, re.compile(_LOGIN.format(hosts=hosts or "localhost")))
    found = {m["user"] for text in texts.values() for form in forms for m in form.finditer(text)}
    for path, text in texts.items():
        if path.endswith("/answers.json"):
            rows = json.loads(text)["facts"].get("ports", [])
            found |= {holder["user"] for row in rows for holder in row["holders"]}
    return sorted(found)


def _addresses(page: FleetPage, texts: Iterable[str]) -> dict[str, str]:
    """Addresses of the fleet's hosts first, then every other that is seen."""
    mine = [a for a in page.hosts.values() if _IPV4.fullmatch(a)]
    seen = [m for text in texts for form in (_IPV4, _IPV6) for m in form.findall(text)]
    found: dict[str, str] = {}
    for address in [*mine, *sorted(set(seen))]:
        if address in found or _NOBODY.match(address):
            continue
        number = len(found) + 1
        v4 = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
        found[address] = v4 if "." in address else f"fd00::{number:x}"
    return found
