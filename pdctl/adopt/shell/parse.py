"""From a script's text to its statements. Compound commands are taken apart only to know where they end."""

from __future__ import annotations

import re

from pdctl.adopt.shell.source import HereDocument, ScriptError, Source
from pdctl.adopt.shell.tree import (
    Assign,
    Block,
    Chain,
    Command,
    Dark,
    Pipeline,
    Redirect,
    Simple,
    Word,
)
from pdctl.adopt.shell.words import NAME, read_word

DECLARES = ("export", "declare", "typeset", "readonly", "local")
_KEYWORD = re.compile(r"(?:[a-z]+|[{}!]|\[\[|\]\])(?=[\s;&|<>()]|$)")
_ASSIGN = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=")
_ELEMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\[[^\]\n]*\]\+?=")
_REDIRECT = re.compile(
    r"(?:[0-9]+|\{[A-Za-z_][A-Za-z0-9_]*\})?(?:(<<<)|(<<-?)|(&>>|&>|>>|>&|>\||<&|<>|<(?!\()|>(?!\()))"
)
_FUNCTION = re.compile(r"[ \t]*\([ \t]*\)")


def parse(text: str) -> tuple[Chain, ...]:
    """Every statement of a script, in order; ScriptError where it cannot be taken apart."""
    if "\r" in text:
        line = text[: text.index("\r")].count("\n") + 1
        raise ScriptError(line, "has Windows line ends, which bash takes for part of the values")
    source = Source(text)
    chains = Parser(source).chains(())
    if not source.ended:
        raise source.fail(f"{source.here!r} stands where no command can begin")
    return chains


def _nested(source: Source) -> None:
    """The commands of a substitution, up to its closing bracket."""
    Parser(source).chains(())


class Parser:
    def __init__(self, source: Source) -> None:
        self.source = source

    def chains(self, stop: tuple[str, ...]) -> tuple[Chain, ...]:
        """Up to one of the keywords `stop`, a closing bracket, `;;` or the end; those are left there."""
        source = self.source
        found: list[Chain] = []
        while True:
            self._breaks()
            if source.ended or source.here == ")" or source.startswith(";;"):
                return tuple(found)
            if stop and self._keyword() in stop:
                return tuple(found)
            found.append(self._chain())

    def _breaks(self) -> None:
        while True:
            self.source.blank()
            if self.source.here != "\n":
                return
            self.source.newline()

    def _keyword(self) -> str:
        found = self.source.match(_KEYWORD)
        return found[0] if found else ""

    def _word(self) -> Word:
        return read_word(self.source, _nested)

    def _expect(self, *keywords: str) -> str:
        self._breaks()
        found = self._keyword()
        if found not in keywords:
            raise self.source.fail(f"{' or '.join(keywords)} is missing")
        self.source.at += len(found)
        return found

    def _chain(self) -> Chain:
        source = self.source
        start, first = source.at, source.line()
        links = [("", self._pipeline())]
        while True:
            end = source.at
            source.blank()
            operator = next((o for o in ("&&", "||") if source.startswith(o)), "")
            if not operator:
                break
            source.at += 2
            self._breaks()
            links.append((operator, self._pipeline()))
        text, last, background = source.text[start:end], source.line(max(start, end - 1)), source.here == "&"
        if source.here and source.here in "&;" and not source.startswith(";;"):
            last = source.line()  # it may stand on a line of its own, after a continuation
            source.at += 1
        source.blank()
        if source.here == "\n" and source.heredocs:
            source.newline()
            last = source.line(source.at - 1)
        return Chain(tuple(links), background, text, first, last)

    def _pipeline(self) -> Pipeline:
        source, prefix = self.source, ""
        while (word := self._keyword()) in ("!", "time"):
            prefix = prefix or word
            source.at += len(word)
            source.blank()
        commands = [self._command()]
        while True:
            end = source.at
            source.blank()
            if not source.startswith("|") or source.startswith("||"):
                source.at = end
                return Pipeline(tuple(commands), prefix)
            source.at += 2 if source.startswith("|&") else 1
            self._breaks()
            commands.append(self._command())

    def _command(self) -> Command:
        source = self.source
        start, line, keyword = source.at, source.line(), self._keyword()
        if source.startswith("(("):
            self._brackets()
            return self._block("((", "", (), start, line)
        if source.here == "(":
            source.at += 1
            body = self.chains(())
            if source.here != ")":
                raise source.fail("( has no end", start)
            source.at += 1
            return self._block("(", "", body, start, line)
        if keyword in ("coproc", "select"):
            raise source.fail(f"{keyword} is not read")
        if keyword in _COMPOUND:
            source.at += len(keyword)
            return self._block(keyword, *_COMPOUND[keyword](self), start, line)
        if keyword in ("then", "else", "elif", "fi", "do", "done", "esac", "in", "}", "]]"):
            raise source.fail(f"{keyword} stands alone")
        return self._simple()

    def _block(self, kind: str, name: str, body: tuple[Chain, ...], start: int, line: int) -> Block:
        self._redirects()
        return Block(kind, name, body, self.source.since(start).rstrip(), line)

    def _redirects(self) -> list[Redirect]:
        found: list[Redirect] = []
        while True:
            before = self.source.at
            self.source.blank()
            redirect = self._redirect()
            if redirect is None:
                self.source.at = before
                return found
            found.append(redirect)

    def _redirect(self) -> Redirect | None:
        source, start = self.source, self.source.at
        found = source.match(_REDIRECT)
        if found is None:
            return None
        source.at = found.end()
        source.blank()
        word = self._word()
        if not word.text:
            raise source.fail(f"{found[0]} has no target", start)
        if found[2]:
            quoted = any(c in word.text for c in "'\"\\")
            literal = "".join(p.text for p in word.parts)
            source.heredocs.append(HereDocument(literal, found[2] == "<<-", quoted))
        return Redirect(found[0], word, source.since(start))

    def _simple(self) -> Command:
        source = self.source
        start, line = source.at, source.line()
        assigns: list[Assign] = []
        args: list[Word | Assign] = []
        redirects: list[Redirect] = []
        end = start
        while True:
            source.blank()
            if (redirect := self._redirect()) is not None:
                redirects.append(redirect)
            elif source.ended or source.here in "\n;&|)":
                break
            elif not args and (assign := self._assign()) is not None:
                assigns.append(assign)
            else:
                args.append(self._argument(args))
                if len(args) == 1 and not assigns and (block := self._function(args[0], start, line)):
                    return block
            end = source.at
        if end == start:
            raise source.fail(f"{source.here or 'the end'!r} stands where no command can begin")
        source.at = end
        return Simple(tuple(assigns), tuple(args), tuple(redirects), source.since(start), line)

    def _argument(self, args: list[Word | Assign]) -> Word | Assign:
        first = args[0] if args else None
        if isinstance(first, Word) and first.plain in DECLARES:
            assign = self._assign()
            if assign is not None:
                return assign
        word = self._word()
        if not word.text:
            raise self.source.fail(f"{self.source.here!r} stands where no word can begin")
        return word

    def _function(self, first: Word | Assign, start: int, line: int) -> Block | None:
        name = first.plain if isinstance(first, Word) else None
        found = self.source.match(_FUNCTION)
        if name is None or found is None:
            return None
        self.source.at = found.end()
        return self._function_body(name, start, line)

    def _function_body(self, name: str, start: int, line: int) -> Block:
        self._breaks()
        body = self._command()
        if not isinstance(body, Block):
            raise self.source.fail(f"the function {name} has no body", start)
        return Block("function", name, body.body, self.source.since(start), line)

    def _assign(self) -> Assign | None:
        source, start, line = self.source, self.source.at, self.source.line()
        if element := source.match(_ELEMENT):
            source.at = element.end()
            self._word()
            return Assign(element[1], False, None, source.since(start), line)
        found = source.match(_ASSIGN)
        if found is None:
            return None
        source.at = found.end()
        value: Word | tuple[Word, ...] = self._array() if source.here == "(" else self._word()
        return Assign(found[1], bool(found[2]), value, source.since(start), line)

    def _array(self) -> tuple[Word, ...]:
        source, start = self.source, self.source.at
        words: list[Word] = []
        source.at += 1
        while True:
            self._breaks()
            if source.here == ")":
                source.at += 1
                return tuple(words)
            word = self._word()
            if not word.text:
                raise source.fail("an array has no end", start)
            if word.text.startswith("["):
                word = Word((Dark(word.text, "names an element of an array", False),), word.text, word.line)
            words.append(word)

    def _brackets(self) -> None:
        """Over ((…)), quotes left alone: arithmetic rarely has any."""
        source, start, depth = self.source, self.source.at, 0
        while True:
            if source.ended:
                raise source.fail("((…)) has no end", start)
            depth += {"(": 1, ")": -1}.get(source.here, 0)
            source.at += 1
            if depth == 0:
                return

    # compound commands: what stands behind the keyword -> (name, body)

    def if_(self) -> tuple[str, tuple[Chain, ...]]:
        body = self.chains(("then",))
        self._expect("then")
        while True:
            body += self.chains(("elif", "else", "fi"))
            keyword = self._expect("elif", "else", "fi")
            if keyword == "fi":
                return "", body
            if keyword == "elif":
                body += self.chains(("then",))
                self._expect("then")

    def loop(self) -> tuple[str, tuple[Chain, ...]]:
        body = self.chains(("do",))
        return "", body + self._done()

    def _done(self) -> tuple[Chain, ...]:
        self._expect("do")
        body = self.chains(("done",))
        self._expect("done")
        return body

    def for_(self) -> tuple[str, tuple[Chain, ...]]:
        source = self.source
        source.blank()
        if source.startswith("(("):
            self._brackets()
        else:
            self._word()
            self._breaks()
            if self._keyword() == "in":
                source.at += 2
                source.blank()
                while not source.ended and source.here not in "\n;":
                    if not self._word().text:
                        raise source.fail("for is not read")
                    source.blank()
        source.blank()
        if source.here == ";":
            source.at += 1
        return "", self._done()

    def case(self) -> tuple[str, tuple[Chain, ...]]:
        source, start = self.source, self.source.at
        source.blank()
        self._word()
        self._expect("in")
        body: tuple[Chain, ...] = ()
        while True:
            self._breaks()
            if self._keyword() == "esac":
                source.at += 4
                return "", body
            if source.ended:
                raise source.fail("case has no end", start)
            if source.here == "(":
                source.at += 1
            while source.here != ")":
                if source.ended or not (self._word().text or source.here == "|"):
                    raise source.fail("a pattern of case is not read")
                source.at += source.here == "|"
                source.blank()
            source.at += 1
            body += self.chains(("esac",))
            for mark in (";;&", ";;", ";&"):
                if source.startswith(mark):
                    source.at += len(mark)
                    break

    def group(self) -> tuple[str, tuple[Chain, ...]]:
        body = self.chains(("}",))
        self._expect("}")
        return "", body

    def test(self) -> tuple[str, tuple[Chain, ...]]:
        source, start = self.source, self.source.at
        while True:
            self._breaks()
            if source.ended:
                raise source.fail("[[ has no end", start)
            if self._keyword() == "]]":
                source.at += 2
                return "", ()
            if not self._word().text:
                source.at += 1

    def function(self) -> tuple[str, tuple[Chain, ...]]:
        source, start, line = self.source, self.source.at, self.source.line()
        source.blank()
        name = self._word().plain
        if name is None or not NAME.match(name):
            raise source.fail("a function's name is not read", start)
        if found := source.match(_FUNCTION):
            source.at = found.end()
        return name, self._function_body(name, start, line).body


_COMPOUND = {
    "if": Parser.if_,
    "while": Parser.loop,
    "until": Parser.loop,
    "for": Parser.for_,
    "case": Parser.case,
    "{": Parser.group,
    "[[": Parser.test,
    "function": Parser.function,
}
