"""What must lie on a host, from the fleet file and profiles alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdctl.errors import ConfigError
from pdctl.fleet.load import load_fleet
from pdctl.flows.deploy.desired import desired_unit
from pdctl.flows.init import Wanted, init_fleet
from pdctl.release.build import build_release
from pdctl.release.runtime import Runtime
from tests.pdctl.models import model_folder

DEVICES = '[values.CUDA_VISIBLE_DEVICES]\nvalue = "0"\nside = "{side}"\nreason = "The first one."\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.toml"
    init_fleet(path, Wanted("test", str(model_folder(tmp_path / "model"))))
    path.write_text(path.read_text().replace('role = "decode"\n', 'role = "decode"\ngpus = [3, 1]\n'))
    return path


def env_of(path: Path, name: str) -> dict[str, str]:
    release = build_release({"engine/__init__.py": b""}, Runtime("existing", "/usr/bin/python3", "3.11", {}))
    fleet = load_fleet(path)
    return desired_unit(fleet, fleet.engine(name), release).env


def test_gpus_are_counted_as_nvidia_smi_counts_them(path: Path) -> None:
    env = env_of(path, "decode-0")
    assert (env["CUDA_DEVICE_ORDER"], env["CUDA_VISIBLE_DEVICES"]) == ("PCI_BUS_ID", "3,1")
    assert "CUDA_VISIBLE_DEVICES" not in env_of(path, "prefill-0")


def test_a_profile_that_names_devices_too_is_refused_with_its_line(path: Path) -> None:
    profile = path.parent / "profiles" / "default.toml"
    text = profile.read_text()
    line = text.count("\n") + 2
    profile.write_text(f"{text}\n{DEVICES.format(side='decode')}")
    with pytest.raises(ConfigError) as caught:
        env_of(path, "decode-0")
    assert f"default.toml:{line}" in caught.value.message and "`gpus` of decode-0" in caught.value.message
    profile.write_text(f"{text}\n{DEVICES.format(side='prefill')}")
    assert env_of(path, "prefill-0")["CUDA_VISIBLE_DEVICES"] == "0", "where the fleet file names none"
    assert env_of(path, "decode-0")["CUDA_VISIBLE_DEVICES"] == "3,1"
