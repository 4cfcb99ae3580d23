"""Keeps recalled content from speaking as the context block itself: markers of the template are broken in it. Pure.

Three things mark the block, whatever its template is: tags (`<recalled-memory>`), fixed lines, and the lines that cite
a turn (`[1] user …`). Content that reads like one of them, to a model rather than to a parser, is changed: a tag loses
its bracket, a line gets a backslash. "Reads like" forgives case, white space, invisible characters, accents, width and
letters of other scripts that look the same. Nothing else of the content changes.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from string import Template

import regex

from producers.context_template import CITATION, ContextTemplate

KNOWN_TAGS = ("recalled-memory", "memory-context", "system-reminder")
"""Broken whatever the template is: by these an import knows what was injected, and agents put memory between them."""
UNMISTAKABLE = 10
"""Letters from which a tag's name is broken even where other letters follow it; `a < memory_limit` must stay."""
BROKEN = "("
"""Stands for the bracket of a tag that content must not have."""

_OPENERS = "<＜﹤‹〈〈⟨❮❬˂ᐸ≺⧼«《⟪⪡≪⋖"
_OPENER = re.compile(f"[{_OPENERS}]")
_IN_TAG = re.compile(r"[\s_/\\|\-⁄∕⧸／]")
_IGNORED = regex.compile(r"[\s\p{Mn}\p{Me}\p{Cf}\p{Cc}\u115f\u1160\u3164\uffa0]+")
_DASHES = regex.compile(r"\p{Pd}")
_NAME_GOES_ON = regex.compile(r"[\p{Cf}\p{Mn}]*[\w.\p{Pd}]")
_TAG_NAME = re.compile(r"<\s*/?\s*([\w.:-]+)")
_LOOK_ALIKES = {
    **{"a": "аαɑᴀ", "b": "ьβʙ", "c": "сϲᴄⅽ", "d": "ԁᴅđɖ", "e": "еεᴇҽɛ", "f": "ꜰƒ", "g": "ɡɢց", "h": "һнհʜ"},
    **{"i": "іιɪıɩ", "j": "јϳᴊ", "k": "кκᴋ", "l": "ӏʟłլ", "m": "мᴍϻ", "n": "пηɴո", "o": "оοσᴏøօ", "p": "рρᴘ"},
    **{"q": "ԛզ", "r": "гʀ", "s": "ѕꜱ", "t": "тτᴛ", "u": "υᴜսʋ", "v": "νᴠѵ", "w": "ԝᴡω", "x": "хχ", "y": "уγʏү"},
    "z": "ᴢʐ",
}
"""Letters of other scripts by the Latin one that they are taken for; after NFKD and case folding."""
_ALIKE = str.maketrans({other: letter for letter, others in _LOOK_ALIKES.items() for other in others})
_AS_LETTERS = str.maketrans("01", "ol")
_ENDS = str.maketrans('>"', ")'")
_CONTROLS = regex.compile(r"[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+")


def folded(text: str) -> str:
    """`text` as the eye compares it: no case, width, accents, white space or invisible characters, one kind of dash."""
    alike = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold()).translate(_ALIKE)
    return str(_DASHES.sub("-", _IGNORED.sub("", alike)))


class Guard:
    """Breaks one template's markers."""

    def __init__(self, template: ContextTemplate) -> None:
        between = [line for line in template.entry if not Template(line).get_identifiers()]
        fixed = [*template.opening.split("\n"), *between, *template.closing.split("\n")]
        literals = "\n".join([*fixed, *template.entry])
        names = [*_TAG_NAME.findall(literals), *KNOWN_TAGS]
        self._names = {letters for name in names if (letters := _letters(name))}
        self._unmistakable = tuple(name for name in self._names if len(name) >= UNMISTAKABLE)
        self._longest = max(map(len, self._names))
        self._lines = {folded(line) for line in fixed} - {""}
        citing = [line for line in template.entry if CITATION in Template(line).get_identifiers()]
        self._citing = [_citing_pattern(line) for line in (f"${CITATION}", *citing)]

    def content(self, text: str) -> str:
        """What was said, without a marker in it."""
        text = _OPENER.sub(lambda found: BROKEN if self._opens_tag(text, found.end()) else found.group(), text)
        return "".join(self._line(line) for line in text.splitlines(keepends=True))

    def values(self, values: Mapping[str, str]) -> dict[str, str]:
        """An entry's fields: each on one line, without what makes a tag or ends an attribute."""
        return {name: _OPENER.sub(BROKEN, _on_one_line(value)).translate(_ENDS) for name, value in values.items()}

    def _opens_tag(self, text: str, start: int) -> bool:
        read = ""
        for index, letters in _tag_letters(text, start):
            read += letters
            if read.startswith(self._unmistakable):
                return True
            if read in self._names and not _NAME_GOES_ON.match(text, index + 1):
                return True
            if len(read) > self._longest:
                break
        return False

    def _line(self, line: str) -> str:
        seen = folded(line)
        if seen in self._lines or any(pattern.match(seen) for pattern in self._citing):
            at = len(line) - len(line.lstrip())
            return f"{line[:at]}\\{line[at:]}"
        return line


def _on_one_line(value: str) -> str:
    return " ".join(_CONTROLS.sub(" ", value).split())


def _letters(name: str) -> str:
    return "".join(one for one in folded(name).translate(_AS_LETTERS) if one.isalnum())


def _tag_letters(text: str, start: int) -> Iterator[tuple[int, str]]:
    """(index, letters) of a tag's name from `start` on, past what may stand between them; ends at anything else."""
    for index in range(start, len(text)):
        character = text[index]
        if _IN_TAG.match(character):
            continue
        seen = folded(character)
        if seen == "-" or not seen:
            continue
        if not seen.isalnum():
            return
        yield index, seen.translate(_AS_LETTERS)


def _citing_pattern(line: str) -> re.Pattern[str]:
    """Matches a folded line that begins as this line of the template does, up to its citation."""
    pattern, at = "", 0
    for found in Template.pattern.finditer(line):
        pattern += re.escape(folded(line[at : found.start()]))
        at = found.end()
        if (found["named"] or found["braced"]) == CITATION:
            break
        pattern += re.escape("$") if found["escaped"] else ".*?"
    return re.compile(pattern + r"\[(?:\d+|\+)\]")
