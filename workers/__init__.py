"""How turns become memory: intake, chunking, embedding, the stores and their upkeep."""
