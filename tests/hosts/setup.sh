#!/bin/sh
# Debian packages that the test hosts need. Says why when it cannot install them; never fails a test run.
packages="systemd-container debootstrap openssh-client iproute2 nftables"
missing=
for package in $packages; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ]; then
  echo "tests/hosts are skipped: not root, and missing:$missing"
elif ! command -v apt-get >/dev/null || [ ! -e /etc/debian_version ]; then
  echo "tests/hosts are skipped: this is not Debian, and missing:$missing"
elif ! { apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -qy install --no-install-recommends $missing; } \
  >/tmp/testhosts-setup.$$ 2>&1; then
  tail -5 /tmp/testhosts-setup.$$
  echo "tests/hosts are skipped: these packages could not be installed:$missing"
fi
rm -f /tmp/testhosts-setup.$$
exit 0
