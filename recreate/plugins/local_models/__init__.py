"""Models on this machine: llama.cpp, vLLM and transformers, and their weights."""
