"""NIXL and UCX lines, from whichever engine prints them."""

from __future__ import annotations

from pdctl.adapters.signs.sign import Sign

SIGNS = (
    Sign("nixl.backend_error", "NIXL_ERR_BACKEND"),
    Sign(
        "ucx.wrong_version",
        "UCP version is incompatible",
        r"required: >?=? ?(?P<required>[\d.]+),? actual:? ?(?P<actual>[\d.]+)",
    ),
)
