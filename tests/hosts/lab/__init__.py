"""Real throw-away hosts on one Linux machine: booted systemd, own sshd, network and disk each.

A host is a systemd-nspawn container over one cached Debian image, in a network namespace of its own; the
hosts of a set meet on a bridge in one more namespace, where the test process joins them as `ctl`. Nothing
is changed in the machine's own network namespace, and every mount lives in a private mount namespace that
dies with its host. What is left in the open is named after the set and removed by `down`: network
namespaces NAME-net and NAME-hN, cgroups testhosts-NAME, the folder BASE/NAME.
"""
