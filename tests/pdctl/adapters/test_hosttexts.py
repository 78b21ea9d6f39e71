"""What tools print becomes values: one text of each form that people paste."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pdctl.adapters.hosttexts import gpus, mounts, numbers, processes, rdma, sockets
from pdctl.adapters.hosttexts.read import host_traces
from pdctl.adapters.traces import GpuProcess, GpuReading, Interface, Mount, Socket

SMI = """
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|=========================================+========================+======================|
|   0  NVIDIA H100 80GB HBM3          On  | 00000000:1B:00.0   Off |                    0 |
| N/A   34C    P0              72W / 700W |   61234MiB / 81559MiB  |    100%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA H100 80GB HBM3          On  | 00000000:43:00.0   Off |                 ERR! |
|ERR!  ERR! ERR!             N/A / ERR!   |       0MiB / 81559MiB  |    ERR!      Default |
+-----------------------------------------+------------------------+----------------------+
| Processes:                                                                              |
|  GPU   GI   CI        PID   Type   Process name                              GPU Memory |
|=========================================================================================|
|    0   N/A  N/A    123456      C   VLLM::Worker_TP0                            61220MiB |
"""


def test_the_table_of_nvidia_smi() -> None:
    healthy = GpuReading(0, util=100, power=72, power_limit=700, used_mib=61234, total_mib=81559)
    broken = GpuReading(1, used_mib=0, total_mib=81559, state="ERR!")
    assert gpus.gpus(SMI) == [healthy, broken]
    assert gpus.processes(SMI) == [GpuProcess("0", 123456, "VLLM::Worker_TP0", 61220)]


@pytest.mark.parametrize("unit", [" %", ""])
def test_csv_of_nvidia_smi(unit: str) -> None:
    text = (
        "index, utilization.gpu [%], power.draw [W], memory.used [MiB]\n"
        f"0, 98{unit}, 71.20 W, 600 MiB\n1, [N/A], 70, 601\n"
    )
    assert gpus.gpus(text) == [
        GpuReading(0, util=98, power=71.2, used_mib=600),
        GpuReading(1, power=70, used_mib=601),
    ]


@pytest.mark.parametrize("header", ["pid, process_name, used_gpu_memory [MiB]\n", ""])
def test_csv_of_compute_apps(header: str) -> None:
    assert gpus.processes(header + "901, VLLM::Worker, 22000 MiB\n") == [
        GpuProcess("", 901, "VLLM::Worker", 22000)
    ]


def test_a_lost_gpu_and_a_listed_one() -> None:
    assert gpus.lost("Unable to determine the device handle for GPU0000:43:00.0: Unknown Error\n")
    assert gpus.gpus("GPU 3: NVIDIA B200 (UUID: GPU-aa)\n") == [GpuReading(3)]


def test_rocm_smi() -> None:
    text = "GPU[0]\t\t: GPU use (%): 99\nGPU[0]\t\t: Average Graphics Package Power (W): 140.0\n"
    assert gpus.gpus(text) == [GpuReading(0, util=99, power=140)]


def test_df_in_every_unit() -> None:
    human = (
        "Filesystem      Size  Used Avail Use% Mounted on\nshm              64M   64M     0 100% /dev/shm\n"
    )
    kib = "Filesystem     1K-blocks  Used Available Use% Mounted on\ntmpfs 65536 60000 5536 92% /dev/shm\n"
    exact = "Filesystem 1B-blocks Used Available Use% Mounted on\n/dev/sda1 100 90 10 90% /\n"
    assert mounts.mounts(human) == [Mount("/dev/shm", 64 << 20, 0)]
    assert mounts.mounts(kib) == [Mount("/dev/shm", 64 << 20, 5536 << 10)]
    assert mounts.mounts(exact) == [Mount("/", 100, 10)]
    assert mounts.mounts(kib.replace("1K-blocks", "Inodes")) == []


def test_ss_and_netstat() -> None:
    ss = (
        "State  Recv-Q Send-Q Local Address:Port Peer Address:PortProcess\n"
        'LISTEN 0      2048       127.0.0.1:8998       0.0.0.0:*    users:(("python3",pid=77,fd=9))\n'
        "LISTEN 0      128             [::]:22            [::]:*\n"
        "ESTAB  0      0          10.0.0.1:22        10.0.0.9:5555\n"
    )
    netstat = "tcp        0      0 0.0.0.0:5557        0.0.0.0:*         LISTEN      901/VLLM::EngineCor\n"
    assert sockets.sockets(ss) == [Socket("127.0.0.1", 8998, "python3", 77), Socket("::", 22)]
    assert sockets.sockets(netstat) == [Socket("0.0.0.0", 5557, "VLLM::EngineCor", 901)]


def test_ip_addr() -> None:
    text = (
        "2: eth0@if9: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000 qdisc mq state UP\n"
        "    inet 10.0.0.1/24 brd 10.0.0.255 scope global eth0\n"
    )
    assert sockets.interfaces(text) == [Interface("eth0", 9000, True, ("10.0.0.1",))]


def test_ibv_devinfo_and_show_gids() -> None:
    devinfo = (
        "hca_id:\tmlx5_0\n\ttransport:\t\tInfiniBand (0)\n\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n"
        "\t\t\tmax_mtu:\t\t4096 (5)\n\t\t\tactive_mtu:\t\t1024 (3)\n"
    )
    gids = (
        "DEV\tPORT\tINDEX\tGID\t\t\tIPv4\t\tVER\tDEV\n"
        "mlx5_0\t1\t0\tfe80:0000:0000:0000:0000:0000:0000:0001\t\tv1\teth0\n"
        "mlx5_0\t1\t3\t0000:0000:0000:0000:0000:ffff:0a00:0001\t10.0.0.1\tv2\teth0\n"
    )
    (port,) = rdma.merged([*rdma.rdma(devinfo), *rdma.rdma(gids)])
    assert (port.device, port.state, port.mtu) == ("mlx5_0", "ACTIVE", 1024)
    assert port.gids == (
        "0 fe80:0000:0000:0000:0000:0000:0000:0001 v1",
        "3 0000:0000:0000:0000:0000:ffff:0a00:0001 10.0.0.1 v2",
    )


def test_ps_with_any_columns() -> None:
    at = datetime(2026, 5, 2, 10, tzinfo=UTC).timestamp()
    aux = (
        "USER PID %CPU %MEM VSZ RSS TTY STAT START TIME COMMAND\n"
        "root 9 0.0 0.1 100 2048 ? Sl 09:00 0:01 python -m x\n"
    )
    (one,) = processes.processes(aux, at)
    assert (one.pid, one.parent, one.rss, one.command) == (9, 0, 2 << 20, "python -m x")
    own = "  PID  PPID     ELAPSED   RSS COMMAND\n  901     1  1-00:00:10  4096 VLLM::Worker_TP1\n"
    (two,) = processes.processes(own, at)
    assert (two.parent, two.started_at, two.command) == (1, at - 86410, "VLLM::Worker_TP1")
    lstart = "PID PPID STARTED CMD\n 7 1 Sat May  2 09:00:00 2026 vllm serve m\n"
    (three,) = processes.processes(lstart, at)
    assert (three.started_at, three.command) == (at - 3600, "vllm serve m")


def test_memory_limits_clock_and_load() -> None:
    free = (
        "               total        used        free      shared  buff/cache   available\n"
        "Mem:           1.0Ti       100Gi       1Gi       1Gi       1Gi       900Gi\n"
    )
    assert numbers.memory(free) == {"memory_total": 1 << 40, "memory_free": 900 << 30}
    assert numbers.locked("max locked memory           (kbytes, -l) 65536") == 64 << 20
    assert (
        numbers.locked("Max locked memory         65536                65536                bytes") == 65536
    )
    assert numbers.locked("unlimited\n", bare=True) == -1 and numbers.locked("65536\n") is None
    chrony = "System time     : 2.400000000 seconds slow of NTP time\nLeap status     : Not synchronised\n"
    assert numbers.clock(chrony) == {"clock_offset": -2.4, "clock_synced": 0}
    assert numbers.clock("System clock synchronized: no\n") == {"clock_synced": 0}
    assert numbers.processors("CPU(s):   96\n load average: 240.1, 2, 3") == {"cores": 96, "load1": 240.1}


def test_a_host_is_all_of_its_documents() -> None:
    seen = host_traces([("nvidia-smi", SMI), ("ulimit", "64\n"), ("notes", "nothing")], [], 0.0)
    assert len(seen.gpus) == 2 and seen.numbers["memlock"] == 65536 and "ulimit" in seen.tools
