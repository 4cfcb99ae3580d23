"""The agent loop of `scope-recall chat`: recall, prompt, a model's streamed answer, both turns kept."""
