"""Small sentence-transformers models that tests make for themselves. Writes model files."""

from __future__ import annotations

from pathlib import Path


def make_model(folder: Path, seed: int) -> Path:
    """A random BERT of two layers with a small WordPiece vocabulary, 32 tokens long, saved as a model is."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    letters = [chr(code) for code in range(33, 127)]
    words = ["the", "deploy", "failed", "because", "token", "expired", "query", ":"]
    vocabulary = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *letters,
        *(f"##{letter}" for letter in letters),
        *words,
    ]
    source = folder.with_name(f"{folder.name}-source")
    source.mkdir(parents=True)
    (source / "vocab.txt").write_text("\n".join(dict.fromkeys(vocabulary)))
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(set(vocabulary)),
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=32,
    )
    BertModel(config).save_pretrained(source)
    BertTokenizerFast(vocab=str(source / "vocab.txt"), model_max_length=32).save_pretrained(source)
    transformer = Transformer(str(source), max_seq_length=32)
    prompts = {"query": "query: ", "passage": "the token: "}
    modules = [transformer, Pooling(transformer.get_embedding_dimension())]
    SentenceTransformer(modules=modules, prompts=prompts, device="cpu").save(str(folder))
    return folder
