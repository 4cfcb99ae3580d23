"""Cross-encoder rerankers through FlagEmbedding's own `FlagReranker`: BAAI/bge-reranker-v2-m3, -base and their like.

Reads model files; fetches them only when downloads are allowed. FlagReranker loads the tokenizer and the model; the
forward passes are made here, because its `compute_score` runs the first batch twice (once to probe the batch size),
which under a deadline is half of the time. A contract test holds the two to the same scores.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from producers.errors import ModelError
from producers.settings import Settings
from query.reranking.pacing import Pace, best_reached, run_in_time
from query.reranking.port import Passage, Reranked
from query.reranking.tokens import tokenizer_scripts
from workers.embedding.text import readable

DEFAULT_MODEL = "BAAI/bge-reranker-v2-m3"
BILINGUAL = frozenset({"BAAI/bge-reranker-base", "BAAI/bge-reranker-large"})
"""Trained on Chinese and English only (their model cards), over a vocabulary that holds every script."""

BATCH = 4
"""Pairs a pass: at about 1 s a pair (bge-reranker-v2-m3 on a CPU) a larger batch cannot be stopped in time."""
UNBOUNDED = 1 << 20
"""Tokenizers that know no limit report a huge one (1e30)."""
WEIGHTS_TO_SKIP = ["*.onnx", "*.onnx_data", "onnx/*", "openvino/*", "*.h5", "*.msgpack", "*.gguf"]
"""Other forms of the same weights, gigabytes that a download would fetch for nothing."""


class FlagCrossEncoder:
    """Scores are the model's raw logits: any real number, higher is better, no sigmoid."""

    def __init__(self, name: str, settings: Settings) -> None:
        """Load `name`, a hub name or a folder. Raises `ModelError` naming it when it is absent, broken or untrained."""
        self.name = name
        folder = _local_folder(name, settings)
        with _quiet():
            _refuse_untrained(name, folder)
            self._tokenizer, self._model, self._device = _load(name, folder)
        self.scripts = frozenset({"han", "latin"}) if name in BILINGUAL else tokenizer_scripts(name, self._tokenizer)
        self._max_tokens = _token_limit(self._tokenizer, self._model)
        self._pace = Pace()
        self._lock = threading.Lock()
        self._tokenizer_lock = threading.Lock()  # truncation is state of the Rust tokenizer: "Already borrowed"
        for _ in range(2):  # the first pass pays for lazy initialisation, the second says how fast it is
            self._pace.restart()
            self.rerank("warm up", [Passage("what a pass costs is known before the first deadline")])

    def rerank(self, query: str, passages: Sequence[Passage], *, deadline: float | None = None) -> Reranked:
        """Logits of (query, text), pairs cut at the model's own limit. Raises `ModelError` when a pass fails."""
        scores: list[float | None] = [None] * len(passages)
        if not passages or (deadline is not None and time.monotonic() >= deadline):
            return Reranked(scores)
        with self._tokenizer_lock:
            pairs = self._tokenizer(
                [readable(query)] * len(passages),
                [readable(passage.text) for passage in passages],
                truncation="longest_first",
                max_length=self._max_tokens,
            )

        def run(indices: list[int]) -> None:
            batch = {name: [rows[index] for index in indices] for name, rows in pairs.items()}
            for index, score in zip(indices, self._forward(batch), strict=True):
                scores[index] = score

        lengths = [len(ids) for ids in pairs["input_ids"]]
        run_in_time(lengths, run, batch=BATCH, pace=self._pace, lock=self._lock, deadline=deadline)
        return Reranked(best_reached(scores))

    def _forward(self, batch: dict[str, list[list[int]]]) -> list[float]:
        import torch

        try:
            inputs = self._tokenizer.pad(batch, return_tensors="pt").to(self._device)
            with torch.inference_mode():
                logits = self._model(**inputs).logits
        except (RuntimeError, IndexError, ValueError) as error:
            raise ModelError(f"reranker {self.name} failed on a batch: {error}") from error
        return [float(score) for score in logits.float().view(-1).tolist()]


def _local_folder(name: str, settings: Settings) -> Path:
    """The folder that holds the model's files. The hub is asked only when downloads are allowed."""
    if Path(name).is_dir():
        return Path(name)
    try:
        from huggingface_hub import snapshot_download, try_to_load_from_cache
    except ImportError as error:
        raise _missing_package(name) from error
    try:
        if settings.allow_downloads:
            return Path(snapshot_download(name, ignore_patterns=WEIGHTS_TO_SKIP))
        config = try_to_load_from_cache(name, "config.json")
    except (OSError, ValueError) as error:  # the hub's errors are OSErrors, a malformed name is a ValueError
        raise ModelError(f"reranker {name!r} cannot be found: {error}") from error
    if not isinstance(config, str):
        raise ModelError(
            f"reranker {name!r} is neither a folder nor in the local model cache; "
            "set SCOPE_RECALL_ALLOW_DOWNLOADS=true to fetch it, or name a folder"
        )
    return Path(config).parent


def _missing_package(name: str) -> ModelError:
    return ModelError(f"reranker {name!r} needs FlagEmbedding: pip install 'scope-recall-hermes[query]'")


def _refuse_untrained(name: str, folder: Path) -> None:
    """FlagReranker would fill a missing scoring head with random numbers and rank by them.

    The checkpoint is matched against the model on the meta device: names and shapes only, no weights are kept.
    """
    try:
        from transformers import AutoModelForSequenceClassification
    except ImportError as error:
        raise _missing_package(name) from error
    try:
        model, report = AutoModelForSequenceClassification.from_pretrained(
            folder, output_loading_info=True, local_files_only=True, device_map="meta"
        )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ModelError(f"reranker {name!r} cannot be loaded: {error}") from error
    absent = sorted(report["missing_keys"]) + sorted(str(key) for key in report["mismatched_keys"])
    if absent:
        raise ModelError(
            f"{name!r} is not a trained reranker: its checkpoint has no weights for {', '.join(absent[:4])}. "
            "Its scores would be random; name a model that was trained to rerank"
        )
    if model.config.num_labels != 1:
        raise ModelError(
            f"{name!r} is a classifier with {model.config.num_labels} labels, not a reranker, which has 1; "
            "name a model that was trained to rerank"
        )


def _load(name: str, folder: Path) -> tuple[Any, Any, str]:
    """Tokenizer, model in evaluation mode, and its device."""
    try:
        from FlagEmbedding import FlagReranker
    except ImportError as error:
        raise _missing_package(name) from error
    try:
        loaded = FlagReranker(str(folder), use_fp16=False)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ModelError(f"reranker {name!r} cannot be loaded: {error}") from error
    device = loaded.target_devices[0]
    return loaded.tokenizer, loaded.model.to(device).eval(), device


def _token_limit(tokenizer: Any, model: Any) -> int:
    """Tokens of a pair that the model reads: the smaller of the tokenizer's limit and the position table.

    RoBERTa counts positions from padding_idx + 1 (fairseq's convention), so its table is that much longer.
    """
    limits = [tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", UNBOUNDED)]
    for path, module in model.named_modules():
        if path.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            limits.append(module.num_embeddings - module.padding_idx - 1)
    return int(min(limit for limit in limits if limit > 0))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the loading bars and reports off the terminal; what matters of them is raised as `ModelError`."""
    try:
        from transformers.utils import logging
    except ImportError:  # said by name in the next step
        yield
        return
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
