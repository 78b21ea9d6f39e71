# Run by sh -e inside a fresh image.
useradd -m -s /bin/bash ops
echo 'ops ALL=(ALL) NOPASSWD:ALL' >/etc/sudoers.d/ops
chmod 440 /etc/sudoers.d/ops
# `dev` has no sudo at all.
useradd -m -s /bin/bash dev
rm -f /etc/ssh/ssh_host_* /var/cache/apt/archives/*.deb /etc/resolv.conf
rm -rf /var/lib/apt/lists/* /usr/share/doc/* /usr/share/man/* /var/log/*.log
echo 'LANG=C.UTF-8' >/etc/default/locale
# MaxStartups and MaxSessions stay as they are on any server.
cat >/etc/ssh/sshd_config.d/testhosts.conf <<'C'
UseDNS no
PasswordAuthentication no
PermitRootLogin prohibit-password
HostKey /etc/ssh/ssh_host_ed25519_key
C
# A host has no clock, console or disk of its own to look after.
systemctl mask -q apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer dpkg-db-backup.timer \
  systemd-tmpfiles-clean.timer getty.target console-getty.service systemd-modules-load.service \
  dev-hugepages.mount sys-fs-fuse-connections.mount
# PID 1 until exec. systemd-nspawn mounts cgroup v1 controllers read-only; each of them shows only this
# host's own subtree here, so hand them to systemd: without this MemoryMax=, TasksMax= and CPUQuota= do
# nothing on a v1 or hybrid machine. Does nothing on cgroup v2.
cat >/usr/local/sbin/testhosts-init <<'C'
#!/bin/sh
for c in memory pids cpu cpuacct cpu,cpuacct blkio; do
  [ -f /sys/fs/cgroup/$c/cgroup.procs ] && mount -o remount,bind,rw /sys/fs/cgroup/$c
done
exec /lib/systemd/systemd "$@"
C
chmod 755 /usr/local/sbin/testhosts-init
: >/etc/machine-id
