"""The reference pages under docs/ that are written from the code: rules, settings, cli, contracts."""
