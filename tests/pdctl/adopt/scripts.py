"""Scripts for tests: `supported` holds what adoption promises to follow, `wild` whatever a shell may hold."""

from __future__ import annotations

from hypothesis import strategies as st

NAMES = ("A", "B", "Cc", "_d", "NCCL_X")
LISTS = ("L", "M")
ENGINE = "python -m sglang.launch_server"

name = st.sampled_from(NAMES)
plain = st.text("abz019.,:/=+-@%^_", min_size=1, max_size=5)
escaped = st.sampled_from(["\\ ", "\\$", "\\'", '\\"', "\\\\", "\\~", "\\#", "\\;", "\\{", "\\\n"])
single = st.text('ab $~{},"\\#;|&]()\n', max_size=6).map(lambda t: f"'{t}'")
reference = st.builds(
    lambda n, how: how.replace("N", n), name, st.sampled_from(["${N}", "${N}", "$N.", '"$N"'])
)
inside = st.one_of(
    st.text("ab '~{},#;|&]()", max_size=5),
    name.map(lambda n: f"${{{n}}}"),
    name.map(lambda n: f"${n}."),
    st.sampled_from(['\\"', "\\$", "\\\\", "\\`", "\\a", "\\\n", "$ ", "${Z:-}", "${A:-d e}", "${B:+x}"]),
)
double = st.lists(inside, max_size=4).map(lambda p: '"' + "".join(p) + '"')
ansi = st.sampled_from(["$'a\\tb'", "$'\\x41'", "$'it\\'s'", "$'\\101'", "$'q\\\\'", "$'\\q'", "$'\\u00e9'"])
default = st.builds(
    lambda n, op, w: f"${{{n}{op}{w}}}",
    st.sampled_from([*NAMES, "Z"]),
    st.sampled_from([":-", "-", ":+", "+", ":=", "="]),
    st.sampled_from(["", "x", "x y", "'x y'", '"x  y"', "$A", '"$A"', "a$B", "${B:-$A}"]),
)
bare = name.map(lambda n: f"${n}")
part = st.one_of(plain, plain, escaped, single, double, double, reference, ansi, default)
joined = st.lists(part, min_size=1, max_size=4).map("".join)
word = st.one_of(joined.filter(lambda w: not w.startswith(("#", "~", "-", "+"))), bare)
value = st.one_of(word, st.just(""))
array = st.lists(word, max_size=3).map(lambda w: "(" + " ".join(w) + ")")
assign = st.builds(lambda n, op, v: f"{n}{op}{v}", name, st.sampled_from(["=", "=", "=", "+="]), value)
array_assign = st.builds(
    lambda n, op, v: f"{n}{op}{v}", st.sampled_from(LISTS), st.sampled_from(["=", "+="]), array
)
pattern = st.sampled_from(["'*.x'", '"[a-z]?"', "\\*", "a\\?b", "'{a,b}'*''".replace("*", "")])
elements = st.sampled_from(
    ['"${L[@]}"', "${L[@]}", '"${M[@]}"', 'x"${M[@]}"y', "${L[0]}", '"${L[*]}"', '"$@"']
)

simple = st.one_of(
    assign,
    assign,
    array_assign,
    st.lists(assign, min_size=1, max_size=3).map(lambda a: "export " + " ".join(a)),
    st.lists(assign, min_size=2, max_size=3).map(" ".join),
    name.map(lambda n: f"export {n}"),
    name.map(lambda n: f"export -n {n}"),
    name.map(lambda n: f"unset {n}"),
    assign.map(lambda a: f"declare -x {a}"),
    st.builds(lambda n, v: f'export "{n}=a{v}"', name, reference),
    default.map(lambda d: f": {d}"),
    default.filter(lambda d: "'" not in d and '"' not in d).map(lambda d: f'echo "{d}" >/dev/null'),
    st.sampled_from(
        ["set -a", "set +a", "set -e", "set -eo pipefail", "set +x", "shopt -s globstar", "umask 022"]
    ),
    st.sampled_from(["cd /tmp", "cd / || exit 1", "cd /usr && cd lib", "cd .", "cd ../", "cd /usr/lib"]),
    st.sampled_from(["", "# a comment; export A=no", "   ", ": 'x", "ulimit -c 0"]).map(
        lambda t: "true" if "'" in t else t
    ),
    st.just("cat <<EOF >/dev/null\nexport A=no $B\nEOF"),
    st.just("(export A=no; cd /)"),
    st.just("export B=no | cat"),
    st.just("set +a; f() { export A=no; }"),
    st.just('source "$LAB/more.env"'),
    st.just("export A=no &\nwait"),
)
guarded = st.builds(
    lambda a, how: how.replace("X", a),
    assign,
    st.sampled_from(
        ["true && X", "X && true", "X || B=no", "{ X; }", "false || X", "mkdir -p /tmp && X", "X; true"]
    ),
)
statement = st.one_of(simple, simple, simple, guarded)

wild = st.one_of(
    statement,
    statement,
    st.sampled_from(
        [
            'if [ -n "$A" ]; then export A=yes; fi',
            "[ -z ] && export B=yes",
            "[[ $A == b* ]] && B=2 || B=3",
            "for A in 1 2; do export B=$A; done",
            "while false; do A=1; done",
            "case $A in a*) export B=1;; *) Cc=2;; esac",
            "g() { export A=g; }; g",
            "export A=$(echo x) B=`echo y`",
            "A=$((1 + 2)); export A",
            ': "$((B=7))"',
            "export A={x,y}",
            "export A=${A%b} B=${#A} Cc=${A/a/b}",
            "export A=~ B=~/x:~/y",
            "read A <<< hello",
            "printf -v A %s x",
            "eval export A=evil",
            "IFS=,",
            "set -- p q",
            "A=1 export B=2",
            "trap 'echo' EXIT",
            "L[1]=x",
            "declare -i A=1+1",
            "let A=4",
            "(( A = 5 ))",
            "unset -f g",
            "set -f",
            "set -u",
            "! true",
            "true | while read -r A; do :; done",
            "export A=$RANDOM$HOSTNAME$PWD",
            "export B=x${A:-$(echo z)}",
            "export _d=$Z",
            "exit 3 || true",
            "false && exit",
            'A="${B:?gone}"',
            "export PATH=$PATH:/x",
            "export A=*",
            "local A=3",
            "readonly Cc",
            "readonly A=ro B",
            "A=again",
            "cd /nonexistent || cd /tmp",
            "cd /tmp || export A=elsewhere",
            "A=$(false) && export B=unreached",
            "A=$(true) || B=unreached",
            "export A=$(false) && export B=reached",
            "command export A=c",
            "builtin export A=b",
            '"export" A=q',
            "\\export A=q",
            "X=export; $X A=q",
            "declare A=d",
            "typeset -x A",
            "export -- A=1",
            "declare -xr _d=1",
            "time export A=timed",
            "A=1 true",
            "A=1 :",
            "(( A++ )) || true",
            "B=$(( A += 2 ))x",
            "h() { if true; then cat <<X\nexport A=no\nX\nfi; }; h",
            "if true; then\ncat <<X >/dev/null\nfi\nX\nexport A=yes\nfi",
            "case a in (a) export A=1 ;; esac",
            "export A=${A:0:1} B=${!A} Cc=${A@Q}",
            'L=("${M[@]:1}" ${#M[@]})',
            "set -o allexport; A=all; set +o allexport",
            "exec 2>&1",
            "exec 3</dev/null",
            "{ export A=grouped; } >/dev/null",
            "until true; do :; done",
            "select A in 1; do break; done </dev/null",
            "[ 1 = 1 ] || { echo no; exit 1; }",
            "[[ -d / ]] || exit 1",
            "grep -q x /dev/null || true",
            "true && false || export A=third",
            "A=x; export A; A=y",
            "unset A B; export A; B=${A-unset}",
            "export A\nA=late",
            "OLD=$A; A=1 B=$A; export OLD",
            "export A='#'no\\#t # comment",
            "pushd /tmp >/dev/null; popd",
            "CDPATH=/; cd tmp",
            "mkdir -p /tmp && export A=made",
            "{ A=1; exit 0; } || true",
            "A=1; return",
            "shift",
            "hash -r; type ls >/dev/null",
            "B=`echo \\`echo x\\``",
            "export A=\"$(echo ')' # )\n)\"",
            "export A=${B:-$(cat <<X\n}\nX\n)}",
            "A=(1 2); export A; B=$A",
            "export UID_=1 PWD=/x",
            "RANDOM=5; A=$RANDOM",
            "export A=$'\\c@' B=$'\\377'",
            "alias python=false",
            "python() { :; }",
        ]
    ),
)
argument = st.one_of(
    word,
    word,
    elements,
    pattern,
    st.sampled_from(["--port=3000{1,2}", "~", "~/m", "*.x", "a=~/b", "#x", "{}"]),
)
clean_argument = st.one_of(word, word, elements, pattern)


def launch(arguments: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """The last line: prefixes, wrappers, the engine, redirections."""
    wrappers = st.sampled_from(
        [
            "",
            "",
            "numactl --cpunodebind=0 --membind=0 ",
            "numactl -N 1 -m 1 ",
            "numactl --cpunodebind 0 --membind 1 ",
            "numactl --interleave=all ",
            "numactl -m 0 ",
            "nohup ",
            "env X=1 Y='a b' ",
            "env -u A ",
            'env -i PATH="$PATH" STARTED="$STARTED" ',
            'numactl --cpunodebind=0 --membind=0 env E="$A" ',
            "nice -n 0 ",
        ]
    )
    prefix = st.lists(assign.filter(lambda a: "+=" not in a), max_size=2).map(
        lambda a: "".join(f"{x} " for x in a)
    )
    tail = st.sampled_from(["", "", " >log 2>&1", " 2>&1 | tee log", " &\nwait", " # end", "; true"])
    return st.builds(
        lambda p, e, w, a, t: f"{p}{e}{w}{ENGINE} {' '.join(a)}{t}",
        prefix,
        st.sampled_from(["exec ", "", ""]),
        wrappers,
        st.lists(arguments, max_size=4),
        tail,
    )


# So that nothing is left to the surroundings.
DEFINED = "A='a  b' B= Cc=c _d=-x NCCL_X=n\nL=() M=(m 'n o')"


def script(
    statements: st.SearchStrategy[str], arguments: st.SearchStrategy[str], *first: str
) -> st.SearchStrategy[str]:
    return st.builds(
        lambda body, last: "\n".join(["#!/bin/bash", *first, *body, last, ""]),
        st.lists(statements, max_size=8),
        launch(arguments),
    )


supported = script(statement, clean_argument, DEFINED)
anything = script(wild, argument)
MORE_ENV = "export NCCL_X=from-file\nB=${A:-none}\n"
