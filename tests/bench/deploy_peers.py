"""The peers: ansible-core and pyinfra in a venv of their own, deploying what pdctl's deploy has left."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.bench import peer_venv
from tests.bench.deploy_site import PLACE, ROOT, UNIT, Site
from tests.bench.procs import BenchError

HOME = peer_venv.CACHE / "bench-deploy"
PINNED = ["ansible-core==2.19.14", "pyinfra==3.10.0"]
PORT = {"prefill-0": 21001, "decode-0": 21003, "router": 21000}
DEADLINE = 300.0  # of one deploy; ansible takes its time on a busy machine

# As fast as ansible can be made: pipelining, one held connection a host, no facts, the hosts not in step.
CONFIG = """[defaults]
forks = 10
gathering = explicit
host_key_checking = True
interpreter_python = /usr/bin/python3
callback_result_format = json
nocows = True
inventory = {folder}/inventory.json
[ssh_connection]
pipelining = True
control_path_dir = {folder}/cm
ssh_args = -F {ssh} -o ControlMaster=auto -o ControlPersist=60s
"""
PLAYBOOK = """
- hosts: all
  gather_facts: false
  strategy: free
  tasks:
  - file: {path: "{{ root }}/env", state: directory, mode: "0700"}
  - unarchive:
      src: "{{ here }}/release.tgz"
      dest: "{{ root }}"
      creates: "{{ root }}/releases/{{ release }}"
  - file: {src: "releases/{{ release }}", dest: "{{ root }}/current", state: link}
  - copy: {src: "{{ here }}/env/{{ item }}", dest: "{{ root }}/env/{{ item }}", mode: "0600"}
    loop: "{{ private }}"
  - copy: {src: "{{ here }}/units/", dest: /etc/systemd/system/, mode: "0644", directory_mode: "0755"}
    register: unit_files
  - copy: {src: "{{ here }}/env/{{ item }}.env", dest: "{{ root }}/env/{{ item }}.env", mode: "0600"}
    loop: "{{ units.keys() | list }}"
    register: settings
  - systemd_service:
      name: "{{ item }}"
      daemon_reload: "{{ unit_files is changed and at == 0 }}"
      enabled: true
      state: "{{ 'restarted' if settings.results[at] is changed else 'started' }}"
    loop: "{{ units.values() | list }}"
    loop_control: {index_var: at}
    register: started
  - uri: {url: "{{ item }}"}
    loop: "{{ urls }}"
    register: ready
    until: ready.status == 200
    retries: 600
    delay: 0.1
- hosts: h1
  gather_facts: false
  tasks:
  - uri:
      url: "{{ router }}/v1/chat/completions"
      method: POST
      body_format: json
      body: "{{ question }}"
      return_content: true
    register: canary
    failed_when: not ((canary.content | from_json).choices[0].message.content | trim)
    when: started is changed or hostvars.h2.started is changed
"""
QUESTION = {"model": "model", "messages": [{"role": "user", "content": "What is gravity?"}], "max_tokens": 8}
READY = """
import sys, time, urllib.request
end = time.monotonic() + 60
for url in {urls!r}:
    while True:
        try:
            if urllib.request.urlopen(url, timeout=5).status == 200:
                break
        except OSError:
            pass
        if time.monotonic() > end:
            sys.exit(url + " is not ready")
        time.sleep(0.02)
print("ok")
"""
CANARY = """
import json, urllib.request
head = {{"Content-Type": "application/json"}}
ask = urllib.request.Request({url!r}, json.dumps({question!r}).encode(), head)
said = json.load(urllib.request.urlopen(ask, timeout=60))["choices"][0]["message"]["content"]
print("ok" if said.strip() else "no text")
"""


def ensure(log_dir: Path) -> None:
    """Install the peers on first use; BenchError with a sentence when they cannot be."""
    peer_venv.ensure(HOME.name, [["install", *PINNED]], log_dir, 600)


class Peers:
    """Their files, written beside those of `site`; `env` is the operator's environment."""

    def __init__(self, site: Site, env: dict[str, str]) -> None:
        self.site = site
        self.env = {**env, "PATH": f"{HOME / 'bin'}:{env['PATH']}", "LC_ALL": "C.UTF-8"}
        folder, names = site.folder, site.lab.names
        (folder / "cm").mkdir(mode=0o700)
        self.ssh = names.dir / "ssh_config"
        (folder / "ansible.cfg").write_text(CONFIG.format(folder=folder, ssh=self.ssh))
        (folder / "playbook.yml").write_text(PLAYBOOK)
        facts = {host.name: self._facts(host.name, host.address) for host in site.lab.hosts}
        (folder / "inventory.json").write_text(json.dumps({"all": {"hosts": facts}}))
        mine = [(name, {**about, **self._programs(name, about)}) for name, about in facts.items()]
        (folder / "inventory.py").write_text(f"hosts = {mine!r}\n")

    def _facts(self, name: str, address: str) -> dict[str, object]:
        here = self.site.folder / name
        return {
            "ansible_host": address,
            "here": str(here),
            "root": ROOT,
            "release": self.site.release(name),
            "private": sorted(p.name for p in (here / "env").iterdir() if p.suffix != ".env"),
            "units": {unit: UNIT[unit] for unit in PLACE[name]},
            "unit_files": sorted(
                str(p.relative_to(here / "units")) for p in (here / "units").rglob("*.*") if p.is_file()
            ),
            "urls": [f"http://{address}:{PORT[unit]}/ready" for unit in PLACE[name]],
            "router": f"http://{address}:{PORT['router']}",
            "question": QUESTION,
        }

    def _programs(self, name: str, about: dict[str, object]) -> dict[str, object]:
        url = f"{about['router']}/v1/chat/completions"
        return {
            "ssh_hostname": name,
            "ssh_config_file": str(Path(self.env["HOME"]) / ".ssh" / "config"),
            "ssh_known_hosts_file": str(Path(self.env["HOME"]) / ".ssh" / "known_hosts"),
            "ready": READY.format(urls=about["urls"]),
            "canary": CANARY.format(url=url, question=QUESTION) if "router" in PLACE[name] else "",
        }

    def ansible(self) -> int:
        """One run of the playbook; how much it says that it changed."""
        said = self._run("ansible-playbook", "playbook.yml")
        recap = said.rpartition("PLAY RECAP")[2]
        counts = re.findall(r"changed=(\d+)\s+unreachable=0\s+failed=0", recap)
        if len(counts) != len(PLACE):
            raise BenchError(f"ansible failed: {recap[-300:]}")
        return sum(map(int, counts))

    def pyinfra(self) -> int:
        steps = str(Path(__file__).with_name("deploy_steps.py"))
        said = self._run("pyinfra", "-y", "inventory.py", steps)
        total = re.search(r"Grand total\s+\d+\s+(\d+|-)\s+-\s+(\d+|-)", said)
        if total is None:
            raise BenchError(f"pyinfra failed: {said[-300:]}")
        return int(total[1].replace("-", "0"))

    def _run(self, *words: str) -> str:
        env = {**self.env, "ANSIBLE_CONFIG": str(self.site.folder / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
        return run([str(HOME / "bin" / words[0]), *words[1:]], env, self.site.folder)

    def close(self) -> None:
        """Ends the connections that ansible holds."""
        for path in (self.site.folder / "cm").iterdir():
            words = ["ssh", "-F", str(self.ssh), "-o", f"ControlPath={path}", "-O", "exit", "host"]
            subprocess.run(words, stderr=subprocess.DEVNULL, check=False)


def run(argv: Sequence[str], env: dict[str, str], folder: Path) -> str:
    """Both outputs of a tool that ends well; BenchError with its last words otherwise."""
    name = os.path.basename(argv[0])
    try:
        done = subprocess.run(
            argv,
            env=env,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DEADLINE,
        )
    except subprocess.TimeoutExpired:
        raise BenchError(f"{name} did not end within {DEADLINE:g} s.") from None
    if done.returncode:
        raise BenchError(f"{name} ended with {done.returncode}: {done.stdout[-1500:]}")
    return done.stdout
