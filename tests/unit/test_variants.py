"""`--compare`: what is read from it, and one clear line for each mistake."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from producers.errors import UsageError
from producers.settings import Settings, load_settings
from query.evaluation.variants import ASKED_WITH, STORED_WITH, variants_of

QUERY = Path(__file__).parents[2] / "query"
ASKS_ONLY = {"api", "agent", "chat", "serve", "keys"}
"""Parts that ask a recaller, or serve one, and rank nothing."""
NOT_COMPARED = {
    "allow_downloads": "a permission",
    "catalog_location": "where the stores are",
    "vectors_location": "where the stores are",
    "context_chars": "of the context block, which evidence is not judged by",
    "context_order": "of the context block",
    "context_template": "of the context block",
    "context_tokens": "of the context block",
    "neighbours": "of the context block",
    "rerank_cache_bytes": "of speed alone",
    "data_dir": "where the stores are",
    "encode_batch": "of speed alone",
    "log_level": "of the logs",
    "workers": "of the ingest's speed",
}
"""Settings that the query package reads beside those compared, and why each is not."""


@pytest.fixture
def base() -> Settings:
    return load_settings(embedder="hashing", deadline_ms=900)


def test_the_settings_as_they_are_come_first_and_each_variant_changes_only_what_it_names(base: Settings) -> None:
    first, named, unnamed = variants_of(base, ["fast:reranker=none, deadline_ms = 100", "wide=80"])
    assert (first.name, first.settings, first.changes) == ("base", base, {})
    assert (named.name, named.as_settings) == ("fast", "reranker=none, deadline_ms=100")
    assert (named.settings.reranker, named.settings.deadline_ms, named.settings.embedder) == ("none", 100, "hashing")
    assert (unnamed.name, unnamed.settings.wide, unnamed.settings.deadline_ms) == ("wide=80", 80, 900)


def test_a_colon_or_comma_within_a_value_is_the_values_own(base: Settings) -> None:
    _, service, folder = variants_of(base, ["embedder=openai:bge-m3", "one:reranker=/models/a,b"])
    assert (service.name, service.settings.embedder) == ("embedder=openai:bge-m3", "openai:bge-m3")
    assert (folder.name, folder.settings.reranker) == ("one", "/models/a,b")


def test_only_what_vectors_are_made_with_needs_an_ingest_of_its_own(base: Settings) -> None:
    first, *others = variants_of(base, ["wide=80", "reranker=none", "embedder=minilm", "chunk_tokens=64"])
    assert [one.stored_with == first.stored_with for one in others] == [True, True, False, False]


def test_a_key_or_password_is_not_shown(base: Settings) -> None:
    (_, one) = variants_of(base, ["reranker_url=http://me:secret@host/rerank,reranker_api_key=hidden"])
    assert "secret" not in one.name + one.as_settings
    assert "hidden" not in one.name + one.as_settings
    assert one.settings.reranker_api_key == "hidden"


@pytest.mark.parametrize(
    ("compared", "said"),
    [
        (["reranker"], "'reranker' is no SETTING=VALUE"),
        ([""], "'' is no SETTING=VALUE"),
        (["rerankr=none"], "unknown setting 'rerankr'; did you mean reranker?"),
        (["colour=red"], "unknown setting 'colour'; compared can be reranker"),
        (["compact_cron=* * * * *"], "compact_cron does not change what is found; compared can be reranker"),
        (["data_dir=/tmp"], "data_dir does not change what is found"),
        (["wide=many"], "setting wide = 'many': Input should be a valid integer"),
        (["wide=100,200"], "setting wide = '100,200': Input should be a valid integer"),
        (["wide=0"], "setting wide = '0': Input should be greater than or equal to 1"),
        (["precision=int8"], "setting precision = 'int8'"),
        (["wide=10,wide=20"], "wide is given twice"),
        (["wide=10", "wide=10"], "the name 'wide=10' is borne by two"),
        (["a:wide=10", "a:wide=20"], "the name 'a' is borne by two"),
        (["base:wide=10"], "the name 'base' is the settings as they are"),
        ([":wide=10"], "the name '' is to be of 1 to 40"),
        (["a/b:wide=10"], "the name 'a/b' is to be of 1 to 40"),
    ],
)
def test_a_mistake_is_named(base: Settings, compared: list[str], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        variants_of(base, compared)
    assert said in str(caught.value)
    assert f"--compare {compared[-1]}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_setting_that_recall_reads_can_be_compared_or_has_a_reason_not_to_be() -> None:
    read = {
        node.attr
        for path in QUERY.rglob("*.py")
        if not ASKS_ONLY & {*path.parts, path.stem}
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, (ast.Name, ast.Attribute))
        and (node.value.id if isinstance(node.value, ast.Name) else node.value.attr).endswith("settings")
        and node.attr in {*Settings.model_fields, "catalog_location", "vectors_location"}
    }
    assert {"reranker", "wide", "deadline_ms"} <= read, "the test looks where settings are read"
    assert read - set(ASKED_WITH) - set(STORED_WITH) - set(NOT_COMPARED) == set()
    assert set(ASKED_WITH) | set(STORED_WITH) <= set(Settings.model_fields)
