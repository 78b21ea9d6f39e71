"""What a host's tools print, one subject a file: GPUs, mounts, sockets, RDMA, processes, numbers; pure."""
