"""One file of a bundle as text: compressed or not, in whichever encoding, its end where it is long."""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import re
import zlib
from collections.abc import Callable
from typing import IO, cast

PACKED = re.compile(r"\.(?:gz|bz2|xz)$")
_OPEN: dict[str, Callable[[IO[bytes]], IO[bytes]]] = {
    ".gz": lambda file: cast(IO[bytes], gzip.GzipFile(fileobj=file)),
    ".bz2": lambda file: cast(IO[bytes], bz2.BZ2File(file)),
    ".xz": lambda file: cast(IO[bytes], lzma.LZMAFile(file)),  # noqa: SIM115 - closed by `read`
}
_OTHERS = re.compile(r"\.(?P<form>zst|zstd|lz4|zip|7z|rar|Z|br|tgz|tar)$")
_CHUNK = 1 << 20
UNPACKED_MAX = 1 << 30  # bytes that are unpacked of one file; a larger one is a bomb or no log
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # begins as that of UTF-16 does
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_SAMPLE = 4096
_MANY = 0.3  # share of NULs on one side of the pairs, and of what is no text


class UnreadError(Exception):
    """Why a file is no text that can be read."""


def read(file: IO[bytes], name: str, most: int) -> tuple[str, bool]:
    """(its text, whether only the end of it was read). UnreadError says why it cannot be."""
    if (other := _OTHERS.search(name)) is not None:
        raise UnreadError(f"packed as {other['form']}; unpack it")
    if (packed := PACKED.search(name)) is None:
        return _plain(file, most)
    try:
        with _OPEN[packed[0]](file) as unpacked:
            return _stream(unpacked, most)
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise UnreadError(f"cannot be unpacked: {error}") from None


def _plain(file: IO[bytes], most: int) -> tuple[str, bool]:
    head = file.read(_SAMPLE)
    size = file.seek(0, 2)
    begin = max(0, size - most)
    file.seek(begin - begin % 4)  # whole characters of every encoding
    return decoded(file.read(most + 4), head), begin > 0


def _stream(file: IO[bytes], most: int) -> tuple[str, bool]:
    """What can only be read forward: the newest `most` bytes are kept."""
    head, kept, seen = b"", b"", 0
    while chunk := file.read(_CHUNK):
        seen += len(chunk)
        if seen > UNPACKED_MAX:
            raise UnreadError(f"more than {UNPACKED_MAX >> 20} MiB when unpacked")
        head = head or chunk[:_SAMPLE]
        kept += chunk
        if len(kept) > 2 * most:
            kept = kept[-most - most % 4 :]
    cut = seen > most
    begin = max(0, len(kept) - most)
    return decoded(kept[begin + (-(begin + seen - len(kept)) % 4) :], head), cut


def decoded(data: bytes, head: bytes) -> str:
    """`data` as text, by how its file begins (`head`). UnreadError for what is none."""
    for mark, encoding in _BOMS:
        if head.startswith(mark):
            return data.decode(encoding, "replace").removeprefix("\ufeff")
    pairs = max(1, len(head) // 2)
    if head[1::2].count(0) > _MANY * pairs and head[::2].count(0) == 0:
        return data.decode("utf-16-le", "replace")
    if head[::2].count(0) > _MANY * pairs and head[1::2].count(0) == 0:
        return data.decode("utf-16-be", "replace")
    text = data.decode("utf-8", "replace")
    sample = text[:_SAMPLE]
    # /proc/PID/environ has NULs between its words; a picture has them and what is no UTF-8.
    if "\0" in sample and sample.count("\ufffd") > 0.05 * len(sample):
        raise UnreadError("is no text")
    return text
