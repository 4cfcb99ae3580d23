"""Prompts that ask nothing, before which there is nothing to recall. Pure."""

from __future__ import annotations

import re

_WORDS = frozenset(
    """
    ok okay k kk yes yeah yep yup no nope nah sure right correct great good nice cool fine perfect awesome excellent
    thanks thx ty cheers please pls hi hello hey yo bye goodbye goodnight morning continue proceed next done stop wait
    go ahead it that is on you thank so much very a lot and got understood agreed exactly lol haha hmm well all sounds
    do
    """.split()
)
_CARRYING = frozenset(
    """
    ok okay k kk yes yeah yep yup no nope nah sure right correct great good nice cool fine perfect awesome excellent
    thanks thx ty cheers hi hello hey yo bye goodbye goodnight morning continue proceed next done stop wait thank got
    understood agreed exactly lol haha hmm go sounds
    """.split()
)
"""Without one of these it is something else: `is that it`."""
_CHINESE = re.compile(
    r"(?:好的?|好吧|好啊|好呀|行|可以|没问题|没事|是的?|对的?|对啊|嗯+|哦+|噢|啊|谢谢?|多谢|感谢|谢谢你|谢谢您|非常感谢|辛苦了?|收到"
    r"|明白了?|知道了|了解了?|懂了|继续|下一步|不用了?|不是|不|你好|您好|哈+|再见|拜拜|早|早上好|晚安|太好了|很好|不错|完美|当然|的|了|吧|呢|啦)+"
)
_LONGEST = 40
"""Characters; a longer one says something."""
_COMMAND = re.compile(r"/[\w-]+(?:@\w+)?(?!\S)")
"""As Hermes tells a command from a path, which it hands over to be asked: `/model x`, `/new@bot`, not `/srv/app.py`."""
_MARKS = re.compile(r"[^\w\s']+|_+")


def is_trivial(prompt: str) -> bool:
    """Whether it is a word of thanks, assent or greeting, a command, or no words at all; English and Chinese."""
    text = prompt.strip()
    if _COMMAND.match(text):
        return True
    words = _MARKS.sub(" ", text.lower()).replace("'", "").split()
    if not words:
        return True
    if len(text) > _LONGEST or any(character in text for character in "?？"):
        return False
    if _CHINESE.fullmatch("".join(words)):
        return True
    return all(word in _WORDS for word in words) and any(word in _CARRYING for word in words)
