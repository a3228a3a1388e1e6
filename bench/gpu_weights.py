"""Models of random weights for the benches on a card: for speed and memory they behave
like trained ones.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast


@dataclass(frozen=True, slots=True)
class Shape:
    """How wide a Llama is, and how deep."""

    width: int = 2048
    layers: int = 24


TINY = Shape(64, 2)


def save_model(folder: Path, shape: Shape) -> None:
    """A Llama whose every text is as long as it may be."""
    config = LlamaConfig(
        vocab_size=32_000 if shape.width > TINY.width else 512,
        hidden_size=shape.width,
        intermediate_size=shape.width * 11 // 4,
        num_hidden_layers=shape.layers,
        num_attention_heads=16,
        num_key_value_heads=16,
        max_position_embeddings=2048,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    has_card = torch.cuda.is_available()
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16 if has_card else torch.float32)
    with torch.device("cuda" if has_card else "cpu"):
        model = LlamaForCausalLM(config)
    torch.set_default_dtype(before)
    model.save_pretrained(str(folder))
    _tokenizer(config.vocab_size).save_pretrained(str(folder))
    del model
    if has_card:
        torch.cuda.empty_cache()


def link_model(made: Path, folder: Path) -> None:
    """The same files under another name: another model to everybody but the disk."""
    folder.mkdir()
    for file in made.iterdir():
        os.link(file, folder / file.name)


def prompt(number: int, words: int = 64) -> str:
    """So many words that the tokenizer knows, one token each."""
    return " ".join(f"w{(number * 7 + i) % 400}" for i in range(words))


def _tokenizer(size: int) -> PreTrainedTokenizerFast:
    """Every token is a word: whatever random weights say can be read at once."""
    words = {"<pad>": 0, **{f"w{i}": i + 1 for i in range(size - 1)}}
    made = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>")
