"""Paths as people read them: from the folder that they stand in, where they are below it."""

from __future__ import annotations

import os
import re


def here(text: str) -> str:
    """`text` with every path below the working directory from there on, as compilers print theirs; JSON keeps
    whole paths."""
    try:
        folder = os.getcwd()
    except FileNotFoundError:
        return text
    if folder == "/":
        return text
    return re.sub(rf"(?<![\w./~-]){re.escape(folder)}/(?=[^\s/])", "", text)
