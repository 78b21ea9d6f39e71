"""Frames and lines of NIXL and UCX while an engine takes up a peer that came back."""

from __future__ import annotations

from pdctl.adapters.signs.sign import Sign

SIGNS = (
    Sign("peer.load", "loadRemoteMD"),
    Sign("peer.load", "loadRemoteData"),
    Sign("peer.load", "ucp_ep_rkey_unpack"),
    Sign("peer.load", "add_remote_agent"),
    Sign("peer.modify_failed", "mlx5dv_devx_obj_modify", r"failed"),
    Sign("peer.segfault", "egmentation fault"),
)
