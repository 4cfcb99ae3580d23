"""Keys, tenants and scopes, fuzzed: whatever a caller asks, no word of another tenant's comes back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from query.api.app import create_app
from served import LOOPBACK, fill, make_key, settings_of
from workers.stores.api_keys import RIGHTS
from workers.stores.catalog import Catalog

pytestmark = pytest.mark.integration

TENANTS = ["acme", "acme ", "ACME", "o'brien", "x' OR '1'='1", "%", "租户", 'a"b', "sr_"]
"""Names that a filter that is not quoted well, or a comparison that is not exact, would mix up."""
SESSIONS = ["s0", "s1", "s'2", "%"]
SECRET = "the password of {} is swordfish"


class Asked:
    """The service over all tenants, a key for each, and one that is revoked."""

    def __init__(self, client: TestClient, keys: dict[str, str], revoked: str) -> None:
        self.client = client
        self.keys = keys
        self.revoked = revoked

    def post(self, path: str, body: dict[str, Any], key: str | None) -> Any:
        headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
        return self.client.post(path, content=json.dumps(body), headers=headers)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    data_dir: Path = tmp_path_factory.mktemp("isolation") / "data"
    fill(data_dir, [(tenant, session, SECRET.format(tenant)) for tenant in TENANTS for session in SESSIONS])
    keys = {tenant: make_key(data_dir, tenant, *RIGHTS)[1] for tenant in TENANTS}
    gone, revoked = make_key(data_dir, "acme", *RIGHTS)
    with closing(Catalog.open(settings_of(data_dir).catalog_location)) as catalog:
        catalog.api_keys.revoke(gone)
    unlimited = settings_of(data_dir).model_copy(update={"api_rate": 0.0})
    with TestClient(create_app(unlimited), LOOPBACK) as client:
        yield Asked(client, keys, revoked)


text = st.one_of(st.sampled_from(TENANTS + SESSIONS), st.text(max_size=20))
names = st.lists(text, max_size=3)
scopes = st.fixed_dictionaries(
    {},
    optional={
        "sessions": names,
        "exclude_sessions": names,
        "agents": names,
        "tags": names,
        "sources": st.lists(st.sampled_from(["push", "%"]), max_size=2),
        "roles": st.lists(st.sampled_from(["user", "tool"]), max_size=2),
        "k": st.integers(1, 60),
        "wide": st.integers(1, 60),
        "explain": st.booleans(),
    },
)
fuzzed = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@fuzzed
@given(owner=st.sampled_from(TENANTS), named=st.none() | text, query=text, scope=scopes)
def test_a_key_recalls_its_own_tenants_turns_only(
    asked: Asked, owner: str, named: str | None, query: str, scope: dict[str, Any]
) -> None:
    body = {"query": f"password {query}", **scope} | ({} if named is None else {"tenant": named})
    answer = asked.post("/v1/recall", body, asked.keys[owner])
    assert answer.status_code in (200, 403, 422)
    if answer.status_code == 200:
        assert named in (None, owner)
        found = answer.json()["hits"]
        assert {hit["tenant"] for hit in found} <= {owner}
        assert {hit["content"] for hit in found} <= {SECRET.format(owner)}
        narrowed = scope.get("sessions")
        assert not narrowed or {hit["session_id"] for hit in found} <= set(narrowed)
    else:
        assert "swordfish" not in answer.text


@fuzzed
@given(owner=st.sampled_from(TENANTS), named=text, session=st.none() | text)
def test_a_key_counts_and_forgets_no_other_tenants_turns(
    asked: Asked, owner: str, named: str, session: str | None
) -> None:
    body = {"tenant": named, "dry_run": True} | ({} if session is None else {"session": session})
    answer = asked.post("/v1/forget", body, asked.keys[owner])
    if named == owner and (session is None or len(session) >= 1):
        expected = len(SESSIONS) if session is None else int(session in SESSIONS)
        assert (answer.status_code, answer.json()["turns"]) == (200, expected)
    else:
        assert answer.status_code in (403, 422)


@fuzzed
@given(data=st.data())
def test_no_other_text_is_a_key(asked: Asked, data: st.DataObject) -> None:
    good = data.draw(st.sampled_from(list(asked.keys.values())))
    at = data.draw(st.integers(0, len(good) - 1))
    wrong = data.draw(
        st.one_of(
            st.just(asked.revoked),
            st.just(good[:at]),
            st.characters(codec="ascii", exclude_categories=["Cc"], exclude_characters=good[at]).map(
                lambda other: good[:at] + other + good[at + 1 :]
            ),
            st.sampled_from(list(asked.keys.values()))
            .filter(lambda other: other != good)
            .map(lambda other: good[:16] + other[16:]),
        ).filter(lambda made: made.strip() not in asked.keys.values())
    )
    for path, body in (("/v1/recall", {"query": "password"}), ("/v1/forget", {"dry_run": True}), ("/v1/turns", {})):
        answer = asked.post(path, body, wrong)
        assert answer.status_code == 401
        assert "swordfish" not in answer.text
