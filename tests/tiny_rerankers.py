"""Small cross-encoders that tests make for themselves. Writes model files."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

WORDS = ["harbour", "violin", "copper", "lemon", "rocket", "garden", "pencil", "winter"]
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TRAINING_STEPS = 400  # about 3 s; the loss is below .01 from step 200 on


def save_tiny_bert(folder: Path, *, head: bool = True, labels: int = 1, train: bool = False) -> Path:
    """A BERT over `WORDS`; trained, it scores a pair high when the text holds the query's word."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertModel, BertTokenizerFast
    from transformers.utils import logging

    logging.disable_progress_bar()
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join(SPECIALS + WORDS))
    BertTokenizerFast(vocab=str(folder / "vocab.txt"), model_max_length=32).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(SPECIALS + WORDS), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=32, num_labels=labels, initializer_range=0.2,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    model = BertForSequenceClassification(config) if head else BertModel(config)
    if train:
        _train(model)
    model.eval().save_pretrained(folder)
    return folder


def _train(model: Any) -> None:
    import torch

    rng = random.Random(0)
    ids = range(len(SPECIALS), len(SPECIALS + WORDS))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(TRAINING_STEPS):
        rows, labels = [], []
        for number in range(32):
            query = rng.choice(ids)
            text = rng.sample([word for word in ids if word != query], 2)
            if number % 2:
                text[rng.randrange(2)] = query
            rows.append([2, query, 3, *text, 3])
            labels.append(float(query in text))
        types = torch.tensor([[0, 0, 0, 1, 1, 1]] * len(rows))
        logits = model(input_ids=torch.tensor(rows), token_type_ids=types).logits[:, 0]
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, torch.tensor(labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
