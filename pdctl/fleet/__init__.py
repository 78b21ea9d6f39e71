"""The fleet file and its profiles: read once, checked whole, then plain frozen values.

    load_fleet(path | None) -> Fleet          (pdctl.fleet.load)   ConfigError lists every file:line problem
    Fleet: path, dir, name, drill, model, hosts, cells, router, paths;
           engines(), engine(name), unit(name), units() in start order, edges()
    Cell:  name, engines, prefills, decodes, edges     an edge is one (prefill, decode) pair
    Engine: name, cell, role, kind, host, address, port, bootstrap_port, tp, url, profile, env, spec
    Router: name, kind, host, address, port, url, profile, env     kind none: the file names no router
    served(command) -> Served | None          (pdctl.fleet.command) what a command starts
    Fleet.paths: state (.pdctl), token, drill_token, journal, evidence, profiles
    Fleet.host_paths(host) -> HostPaths: root, tree, deployment, unit, env, log, run

    load_profile(fleet.paths.profiles, name) -> Profile      (pdctl.fleet.profile)
    Profile.values[ENV] -> Value(env, value, side, reason, origin, verified, secret); .is_verified, .place
    Profile.env_for(role) -> dict[str, Value]                role: prefill | decode | both | router
    engine_env(fleet, engine|router) -> dict[str, Value]     profile, then the fleet file's own `env`
    chain_problems(values: Mapping[str, float]) -> list[str] timeouts out of order, as sentences
    refuse_disorder(fleet)                                   (pdctl.fleet.order) the same over every edge
    known() -> dict[str, Setting]                            (pdctl.fleet.catalogue) the PD_* variables
    find(variable) -> Variable | None                        (pdctl.fleet.catalogue.find) of every family
    deadlines() -> dict[str, Deadline]                       (pdctl.fleet.catalogue.timeouts) by one name each
    check_profiles(fleet, name | None) -> list[Finding]      (pdctl.fleet.check.run) worst first
    set_value / set_verified                                 (pdctl.fleet.edit) edit a profile, keep comments
    read_token(fleet) -> str                                 (pdctl.fleet.tokens) for Authorization: Bearer

Nothing here talks to a host or an engine.
"""
