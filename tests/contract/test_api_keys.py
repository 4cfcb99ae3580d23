"""The query service's keys over a real database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from producers.errors import UsageError
from producers.events import CANARY_TENANT
from workers.stores.api_keys import ApiKeys
from workers.stores.catalog import Catalog
from workers.stores.tables import api_keys as table

pytestmark = pytest.mark.contract


@pytest.fixture
def catalog(catalog_url: str) -> Iterator[Catalog]:
    opened = Catalog.open(catalog_url, create=True)
    yield opened
    opened.close()


@pytest.fixture
def keys(catalog: Catalog) -> ApiKeys:
    return catalog.api_keys


def test_a_key_is_found_by_its_text_with_its_tenant_and_rights(keys: ApiKeys) -> None:
    key, text = keys.create("o'brien", ("recall", "push", "push"), "hermes")
    assert text.startswith(f"sr_{key.id}_")
    assert (key.tenant, key.rights, key.name) == ("o'brien", ("push", "recall"), "hermes")
    assert keys.find(text) == key
    assert keys.all() == [key]


def test_no_other_text_finds_it(keys: ApiKeys) -> None:
    key, text = keys.create("acme")
    _, other = keys.create("acme")
    secret, id_part = text[len(f"sr_{key.id}_") :], f"sr_{key.id}_"
    swapped = id_part + other[len(id_part) :]
    nearly = [text[3:], text[:-1], text + "x", text + "\n", text.upper(), f" {text}", swapped]
    wrong = ["", "sr_", "sr__", secret, id_part, *nearly, f"sr_\ud800_{secret}", f"{id_part}\x00"]
    assert [text for text in wrong if keys.find(text) is not None] == []


def test_the_secret_is_long_random_and_not_stored(keys: ApiKeys, catalog: Catalog) -> None:
    texts = [keys.create("acme")[1] for _ in range(20)]
    secrets = {text.split("_", 2)[2] for text in texts}
    assert len(secrets) == 20
    assert min(map(len, secrets)) >= 43, "256 bits, six to a character"
    with catalog.snapshot() as connection:
        stored = repr(connection.execute(sa.select(table)).all())
    assert not any(secret in stored for secret in secrets)


def test_a_revoked_key_is_found_no_more_and_stays_in_the_list(keys: ApiKeys) -> None:
    key, text = keys.create("acme")
    kept, kept_text = keys.create("acme")
    ended = keys.revoke(key.id)
    assert ended.revoked is not None
    assert keys.revoke(key.id) == ended, "again changes nothing"
    assert keys.find(text) is None
    assert keys.find(kept_text) == kept
    assert keys.all() == [ended, kept]
    with pytest.raises(UsageError, match="no key nothing: `scope-recall keys list`"):
        keys.revoke("nothing")


def test_whether_there_ever_was_a_key_and_whether_one_works(keys: ApiKeys) -> None:
    assert (keys.ever(), keys.ever(good=True)) == (False, False)
    key, _ = keys.create("acme")
    assert (keys.ever(), keys.ever(good=True)) == (True, True)
    keys.revoke(key.id)
    assert (keys.ever(), keys.ever(good=True)) == (True, False)


@pytest.mark.parametrize(
    ("tenant", "name", "reason"),
    [
        ("", "", "tenant: 0 characters"),
        ("t" * 257, "", "tenant: 257 characters"),
        ("a\x00b", "", "control characters"),
        ("a\ud800", "", "lone surrogates"),
        (CANARY_TENANT, "", "is the query service's own"),
        ("acme", "n" * 257, "name: 257 characters"),
    ],
)
def test_a_key_for_what_can_be_no_tenant_is_refused(keys: ApiKeys, tenant: str, name: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        keys.create(tenant, name=name)
    assert keys.all() == []
