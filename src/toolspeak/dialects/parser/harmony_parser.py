"""The parser of Harmony turns: a sequence of messages, each a header (role, recipient, channel) and a content."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from toolspeak.data.deltas import CallIgnored, CallMalformed, Delta, ForgedResults, ReasoningDelta, TextDelta
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.parser.damaged_calls import one_apart
from toolspeak.dialects.parser.harmony_bare import (
    BEGINNING,
    FILLER,
    FILLER_COMING,
    FIRST,
    RECIPIENT,
    WORDS,
    beginnings_in,
    decide,
    is_filler,
)
from toolspeak.dialects.parser.harmony_header import (
    ADDRESSEE,
    CHANNEL,
    ENDS,
    EXAMPLE,
    ROLE,
    STARTS,
    TOKENS,
    last,
    shape,
    stripped_shape,
)
from toolspeak.dialects.parser.turn_parser import TurnParser
from toolspeak.dialects.readers.body import CUT_OFF_REASON
from toolspeak.dialects.readers.named_calls import NamedCalls
from toolspeak.dialects.text.block_delimiters import begins
from toolspeak.dialects.text.scan import MAX_CANDIDATE, Buffer, Caps, Problem
from toolspeak.dialects.turn_rules import BatchRule, Section

NAMELESS = f"a message ended with <|call|>, but its header names no tool, so it did not run; write:\n{EXAMPLE}"

_TOKEN = re.compile("|".join(map(re.escape, TOKENS)))
_OUTER = re.compile("|".join(map(re.escape, (*ENDS, *STARTS))))
# Most headers match in one step: a role, a channel, an optional content type, with a recipient in any of them.
_WHOLE_HEADER = re.compile(
    r"(?:<\|start\|>[^<]{0,100}+)?+<\|channel\|>[^<]{0,100}+(?:<\|constrain\|>[^<]{0,9}+)?+<\|message\|>"
)
_ALL = BatchRule("all_calls")
_NEXT_MESSAGE = "<|end|><|start|>"
_LONGEST = max(map(len, TOKENS))
_SPACE = re.compile(r"\s*")
_CANDIDATE = re.compile(f"<|`|{BEGINNING.pattern}")
"""Finds characters of a chunk that may begin a token or a call, or inline code."""


class HarmonyParser(TurnParser):
    """Implements `Parser`. A message with a recipient is a call, on any channel, with `to=` in any place."""

    # Attributes of the class until they are set.
    _thinking: bool = False  # whether the message is reasoning
    _unmarked: bool = False  # whether the open call has no tokens
    _body: NamedCalls | None = None
    _forged_results: Buffer | None = None
    _problem: Problem | None = None
    _offset: int = 0
    _last: str = ""  # the last character of the content that is not white space
    _caps: Caps = Caps()

    def __init__(self, tools: Sequence[ToolSpec] = (), starts_in: Section = "text") -> None:
        super().__init__(_ALL)
        self._tools = {spec.name: spec for spec in tools}
        self._kind: type[TextDelta | ReasoningDelta] = TextDelta
        self._state = self._between
        if starts_in == "reasoning":
            self._state, self._kind, self._thinking = self._content, ReasoningDelta, True

    def keep_reasoning(self) -> None:
        super().keep_reasoning()
        self._kind = TextDelta

    def _plain(self, chunk: str) -> list[Delta] | None:
        if self._pending or not chunk or self._state != self._content or _CANDIDATE.search(chunk) is not None:
            return None
        if self._quoting:
            self._quoting = "\n" not in chunk  # a backtick would have been a candidate
        self._position += len(chunk)
        self._last = chunk.rstrip()[-1:] or self._last
        return [self._kind(chunk)]

    def _end(self, out: list[Delta], normal: bool) -> None:
        if self._body is not None:
            self._close_call(self._body, normal, out)
        elif self._forged_results is not None:
            self._forged_results.add(self._pending)
            out.append(ForgedResults(self._forged_results.value()))
        elif self._state == self._header:
            self._close_header(normal, out)
        elif self._pending and not (self._state == self._between and self._position and _is_remnant(self._pending)):
            out.append(self._kind(self._pending))

    def _between(self, text: str, position: int, out: list[Delta]) -> int:
        """At the turn's start and between messages, where a header may begin without a token."""
        first = text[position]
        if first not in FIRST and not first.isspace():
            self._state, self._kind, self._quoting = self._content, TextDelta, False
            return position
        if self._tools and first != "<":
            filler = FILLER.match(text, position)
            at = filler.end() if filler else position
            verdict = decide(self._tools, text, at) if text.startswith("t", at) else "text"
            if isinstance(verdict, int):
                return self._open_bare(text, at, verdict, out)
            if len(text) - position < MAX_CANDIDATE and (
                verdict == "undecided" or at == len(text) or FILLER_COMING.fullmatch(text, position)
            ):
                return self._hold(text, position)
        match = _TOKEN.search(text, position, position + MAX_CANDIDATE)
        stop = match.start() if match else len(text)
        if stop == position or is_filler(text[position : min(stop, position + MAX_CANDIDATE)], whole=match is not None):
            if match is None and len(text) - position < MAX_CANDIDATE:
                return self._hold(text, position)
            if match is not None and match[0] not in ENDS:
                self._state = self._header
                return position
        elif match is None and _cut_token(text, position) < len(text):
            at = _cut_token(text, position)
            if is_filler(text[position:at], whole=True) and len(text) - position < MAX_CANDIDATE:
                return self._hold(text, position)
        self._state, self._kind, self._quoting = self._content, TextDelta, False
        return position

    def _header(self, text: str, position: int, out: list[Delta]) -> int:
        """Reads a header up to `<|message|>`. A header longer than a candidate is text, without bare words of the
        format."""
        whole = _WHOLE_HEADER.match(text, position)
        if whole is not None:
            self._open(whole[0], whole.end(), out)
            return whole.end()
        read = position  # the tokens so far end here
        while True:
            match = _TOKEN.search(text, read, position + MAX_CANDIDATE + _LONGEST)
            is_end = match is not None and match[0] in ENDS
            if match is not None and is_end and _is_remnant(text[position : match.start()]):
                self._state = self._content
                return match.start()
            if is_end or (match.end() if match else len(text)) - position > MAX_CANDIDATE:
                stop = match.start() if match and read == position else read
                self._emit(text[position:stop], out)
                self._state = self._content
                return stop
            if match is None:
                return self._hold(text, position)
            read = match.end()
            if match[0] == "<|message|>":
                self._open(text[position:read], read, out)
                return read
            if match[0] == "<|start|>":
                before = text[position : match.start()]
                if not _is_remnant(before):
                    self._emit(before, out)
                position = match.start()

    def _open(self, head: str, at: int, out: list[Delta]) -> None:
        self._quoting = False
        role, to, channel = last(ROLE, head), last(ADDRESSEE, head), last(CHANNEL, head)
        ours = not role or one_apart(role, "assistant")
        if not ours and (to or "assistant") == "assistant":
            self._batch.close(out)  # the rest relies on fabricated results
            self._forged_results, self._state = Buffer(self._caps.characters), self._forgery
        elif to and to != "assistant":
            self._body = NamedCalls(shape(tuple(self._tools)), self._calls, self._caps, self._tools)
            head = head[head.index("<|start|>assistant") + 18 :] if "<|start|>assistant" in head else head
            self._body.start = self._position + at - len(head)
            self._body.feed(head.replace("<|message|>", "") + "<|message|>", 0, out)
            self._state = self._call
        else:
            if not role and not to and not channel and not _is_remnant(head):
                self._emit(head, out)  # no header, as it has no role, recipient or channel
            self._thinking = channel == "analysis"
            self._kind = self._reasoning_kind if self._thinking else TextDelta
            self._state = self._content
            self._markup(head, out)

    def _open_bare(self, text: str, at: int, stop: int, out: list[Delta]) -> int:
        self._body = NamedCalls(stripped_shape(tuple(self._tools)), self._calls, self._caps, self._tools)
        self._body.start, self._unmarked, self._quoting = self._position + at, True, False
        self._body.feed(text[at:stop], 0, out)
        self._state = self._call
        return stop

    def _before_bare(self, text: str, position: int, token: int, out: list[Delta]) -> int | None:
        """Begins a call without tokens, if one may begin before the next token. `token` is the position of the first
        possible token, or -1. None if no such call begins."""
        quoting, scan_end = self._quoting, position
        while token >= 0:
            quoting, scan_end = inline_code_at(quoting, text, scan_end, token), token
            if not quoting and (_OUTER.match(text, token) or _cut_token(text, token) == token):
                break
            token = text.find("<|", token + 2)
        quoting, scan_end = self._quoting, position
        for at in beginnings_in(text, position, token if token >= 0 else len(text)):
            quoting, scan_end = inline_code_at(quoting, text, scan_end, at), at
            verdict = "text" if quoting else decide(self._tools, text, at)
            if verdict != "text":
                self._emit(text[position:at], out)
                return self._hold(text, at) if verdict == "undecided" else self._open_bare(text, at, verdict, out)
        return None

    def _content(self, text: str, position: int, out: list[Delta]) -> int:
        at = text.find("<|", position)
        if self._tools and not self._thinking:
            stop = self._before_bare(text, position, at, out)
            if stop is not None:
                return stop
        start = scan_end = position
        quoting = self._quoting
        while at >= 0:
            quoting, scan_end = inline_code_at(quoting, text, scan_end, at), at
            # An unmatched backtick in reasoning must not hide the call after: two tokens in a row end inline code.
            open_thought = quoting and self._thinking
            is_quoted = quoting and not (open_thought and text.startswith(_NEXT_MESSAGE, at))
            match = None if is_quoted else _TOKEN.match(text, at)
            if match and match[0] in (*ENDS, *STARTS):
                self._emit(text[start:at], out)
                if match[0] in ENDS:
                    self._markup(match[0], out)
                if match[0] == "<|call|>" and self._last == "}":
                    # A message without a recipient may hold the arguments of a call.
                    out.append(CallMalformed(self._calls, "", "no_name", NAMELESS, self._position + at, None, True))
                    self._add([self._calls], (), out, broken=True)
                    self._calls += 1
                self._thinking, self._last = False, ""
                if match[0] in STARTS:
                    self._state = self._header
                    return at
                self._state, self._kind, self._quoting = self._between, TextDelta, False
                return match.end()
            if not quoting and _cut_token(text, at) == at:
                break
            if open_thought and begins(text, at, _NEXT_MESSAGE):
                break
            position = at + 2
            at = text.find("<|", position)
        else:
            at = len(text) - 1 if text.endswith("<", position) else len(text)
            if at < len(text) and not self._thinking and inline_code_at(quoting, text, scan_end, at):
                at = len(text)
        self._emit(text[start:at], out)
        return self._hold(text, at)

    def _call(self, text: str, position: int, out: list[Delta]) -> int:
        body = self._expect_body()
        stop = body.feed(text, position, out)
        if body.problem is not None:
            self._fail(body.problem, body.start + body.problem_offset)
        elif body.is_complete:
            self._state = self._call_end
        else:
            return self._await_more(body, text, stop)
        return stop

    def _call_end(self, text: str, position: int, out: list[Delta]) -> int:
        """After the arguments: white space or a code fence, then the end token or the next message."""
        body = self._expect_body()
        if self._unmarked:
            self._finish(body, out)
            return position
        space = _SPACE.match(text, position)
        stop = space.end() if space else position
        if stop > position or text.startswith("```", stop):
            stop = stop if stop > position else stop + 3
            body.raw.add(text[position:stop])
            return stop
        match = _OUTER.match(text, position)
        if match:
            self._finish(body, out)
            return match.end() if match[0] in ENDS else position
        if _cut_token(text, position) == position or "```".startswith(text[position : position + 3]):
            return self._hold(text, position)
        self._fail(
            Problem("trailing_text", "text after the arguments; end them with <|call|>"), self._position + position
        )
        return position

    def _skip(self, text: str, position: int, out: list[Delta]) -> int:
        """After a problem: skips to the next end token."""
        body, at = self._expect_body(), position
        while (at := text.find("<|", at)) >= 0:
            match = _TOKEN.match(text, at)
            if match and match[0] in ENDS:
                body.raw.add(text[position:at])
                self._finish(body, out)
                return match.end()
            if _cut_token(text, at) == at:
                break
            at += 2
        else:
            at = len(text) - 1 if text.endswith("<") and len(text) > position else len(text)
        body.raw.add(text[position:at])
        return self._hold(text, at)

    def _forgery(self, text: str, position: int, out: list[Delta]) -> int:
        """Reads a fabricated result up to its end or the next message."""
        forged_results = self._forged_results
        assert forged_results is not None, "reading a forgery that did not begin is our bug"
        if match := _OUTER.search(text, position):
            forged_results.add(text[position : match.start()])
            out.append(ForgedResults(forged_results.value()))
            self._forged_results, self._state, self._kind = None, self._between, TextDelta
            return match.end() if match[0] in ENDS else match.start()
        stop = _cut_token(text, position)
        forged_results.add(text[position:stop])
        return self._hold(text, stop)

    def _emit(self, text: str, out: list[Delta]) -> None:
        if text:
            out.append(self._kind(text))
            self._last = text.rstrip()[-1:] or self._last
            self._quoting = inline_code_at(self._quoting, text, 0, len(text))

    def _markup(self, text: str, out: list[Delta]) -> None:
        """Sends the tokens around reasoning as text if reasoning stays in the text."""
        if self._thinking and self._reasoning_kind is TextDelta:
            self._emit(text, out)

    def _expect_body(self) -> NamedCalls:
        assert self._body is not None, "a call's state without a call is our bug"
        return self._body

    def _fail(self, problem: Problem, offset: int) -> None:
        self._problem, self._offset, self._state = problem, max(offset, 0), self._skip

    def _finish(self, body: NamedCalls, out: list[Delta]) -> None:
        """Ends the call, at its end token or at the end of the turn."""
        indexes = [call.index for call in body.calls]
        malformed_indexes = {call.index for call in body.calls if isinstance(call, CallMalformed)}
        self._calls += len(indexes)
        problem = self._problem
        if problem is not None:
            out.extend(CallIgnored(index, "its message could not be read to the end") for index in indexes)
            raw = body.raw.value()
            out.append(CallMalformed(self._calls, raw, problem.code, problem.reason, self._offset, None, True))
            indexes = [self._calls]
            self._calls += 1
        self._add(indexes, malformed_indexes, out, broken=problem is not None)
        self._body = self._problem = None
        self._unmarked = False
        self._state, self._kind = self._between, TextDelta

    def _add(
        self, indexes: Sequence[int], malformed_indexes: Collection[int], out: list[Delta], *, broken: bool
    ) -> None:
        self._batch.has_block = True
        self._batch.add(indexes, malformed_indexes, (), out, broken=broken)

    def _close_call(self, body: NamedCalls, normal: bool, out: list[Delta]) -> None:
        body.raw.add(self._pending)
        if self._unmarked and normal and self._problem is None:
            body.end(out)
        if self._problem is None and not (normal and body.is_complete):
            problem_text = "the turn ended inside a call, so it did not run; close what is open, then <|call|>"
            self._fail(
                Problem("unclosed", problem_text) if normal else Problem("truncated", CUT_OFF_REASON), self._position
            )
        self._finish(body, out)

    def _close_header(self, normal: bool, out: list[Delta]) -> None:
        head = self._pending
        if not normal and ADDRESSEE.search(head):
            out.append(CallMalformed(self._calls, head, "truncated", CUT_OFF_REASON, self._position, None, True))
            self._add([self._calls], (), out, broken=True)
            self._calls += 1
        elif not _is_remnant(head):
            self._emit(head, out)


def begins_turn(text: str) -> bool | None:
    """Whether a turn with this beginning begins with a header; None asks for more text."""
    filler = FILLER.match(text)
    bare = text[filler.end() if filler else 0 :][: len(RECIPIENT)]
    if bare == RECIPIENT:
        return True
    if RECIPIENT.startswith(bare) or FILLER_COMING.fullmatch(text):
        return None
    match = _TOKEN.search(text)
    stop = match.start() if match else _cut_token(text, 0)
    if not is_filler(text[:stop], whole=stop < len(text)):
        return False
    return True if match else None


def inline_code_at(quoting: bool, text: str, start: int, stop: int) -> bool:
    """Whether text[stop] is in inline code: an odd number of backticks precedes it on its line.

    `quoting`: the same for text[start].
    """
    if start == stop:
        return quoting
    line = text.rfind("\n", start, stop)
    if line >= 0:
        return text.count("`", line, stop) % 2 == 1
    return quoting ^ (text.count("`", start, stop) % 2 == 1)


def _cut_token(text: str, position: int) -> int:
    """The start of a token that the text's end cuts short; else the text's end."""
    at = text.rfind("<", max(position, len(text) - _LONGEST))
    return at if at >= 0 and any(token.startswith(text[at:]) for token in TOKENS) else len(text)


def _is_remnant(head: str) -> bool:
    """Whether an incomplete header consists of tokens and words of the format only."""
    return all(word in (*WORDS, "json") for word in _TOKEN.sub(" ", head).split())
