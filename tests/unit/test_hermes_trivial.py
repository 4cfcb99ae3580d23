"""Which prompts ask nothing."""

from __future__ import annotations

import pytest

from producers.hermes.trivial import is_trivial

NOTHING = """
ok|OK!|thanks|Thank you so much!|yes|Yes, please.|no|got it|sounds good|go ahead|continue|hi|Hello!|👍|...|  |/new
/model x|/re-load_all|/new@some_bot now|/|lol|k|yep, do it|that is perfect|great, thanks
好的|好的，谢谢！|嗯嗯|可以|没问题|继续|你好|谢谢你|明白了|收到|对的|是的
"""
SOMETHING = """
What port?|ok, and what about the proxy port|yes but use the other database|is that it|do it again with tests
why|not that one|hi Wilhelmine|thanks to whom?|the cat|it is on|no, the second one|8443|delete all|morning standup time
/srv/app.py: where is the port set?|/srv/app.py|/etc/hosts says what|//what is this|/etc: what is there|/v1.2 or later
证书为什么过期|好的，那证书呢|可以用哪个端口|继续部署到生产环境|可以吗？|谁
"""


@pytest.mark.parametrize("prompt", NOTHING.strip("\n").replace("\n", "|").split("|"))
def test_thanks_assent_greetings_and_commands_ask_nothing(prompt: str) -> None:
    assert is_trivial(prompt)


@pytest.mark.parametrize("prompt", SOMETHING.strip("\n").replace("\n", "|").split("|"))
def test_whatever_names_a_thing_is_asked(prompt: str) -> None:
    assert not is_trivial(prompt)
