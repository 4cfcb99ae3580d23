"""How memory comes out: candidates, fusion, reranking and the context block."""
