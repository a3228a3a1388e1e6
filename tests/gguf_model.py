"""Writes a real GGUF file with random weights, small enough to make in a test.

Run with a Python that has the package `gguf`: the path of the file, then on stdin JSON
with `tokens` and `merges` of a byte-level tokenizer, `end` (the id of its last word)
and `chat` (how turns become text).
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

# Large enough that a text takes seconds.
WIDTH, INNER, LAYERS, HEADS, KV_HEADS = 256, 1024, 8, 8, 4
LONGEST = 4096
_NORMAL, _CONTROL = 1, 3


def main() -> None:
    gguf: Any = importlib.import_module("gguf")
    import numpy

    told: dict[str, Any] = json.load(sys.stdin)
    made = gguf.GGUFWriter(sys.argv[1], "llama")
    made.add_context_length(LONGEST)
    made.add_embedding_length(WIDTH)
    made.add_feed_forward_length(INNER)
    made.add_block_count(LAYERS)
    made.add_head_count(HEADS)
    made.add_head_count_kv(KV_HEADS)
    made.add_rope_dimension_count(WIDTH // HEADS)
    made.add_layer_norm_rms_eps(1e-5)
    _add_tokenizer(made, told)
    dice = numpy.random.default_rng(7)
    for name, shape in _shapes(len(told["tokens"])).items():
        weights = numpy.ones(shape) if len(shape) == 1 else dice.normal(0, 0.1, shape)
        if name == "output.weight":
            # It chooses neither to end a text nor halves of letters.
            weights[[not _is_plain(token) for token in told["tokens"]]] = 0.0
        made.add_tensor(name, weights.astype(numpy.float32))
    made.write_header_to_file()
    made.write_kv_data_to_file()
    made.write_tensors_to_file()
    made.close()


def _is_plain(token: str) -> bool:
    return token.isascii() and token.isalnum()


def _add_tokenizer(made: Any, told: dict[str, Any]) -> None:
    tokens = told["tokens"]
    made.add_tokenizer_model("gpt2")
    made.add_tokenizer_pre("gpt-2")
    made.add_token_list(tokens)
    kinds = [_CONTROL if t in ("<pad>", "<end>") else _NORMAL for t in tokens]
    made.add_token_types(kinds)
    made.add_token_merges(told["merges"])
    made.add_eos_token_id(told["end"])
    made.add_bos_token_id(told["end"])
    made.add_add_bos_token(False)
    made.add_chat_template(told["chat"])


def _shapes(words: int) -> dict[str, tuple[int, ...]]:
    """By name; rows first, as numpy has them."""
    narrow = WIDTH // HEADS * KV_HEADS
    found: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (words, WIDTH),
        "output_norm.weight": (WIDTH,),
        "output.weight": (words, WIDTH),
    }
    for layer in range(LAYERS):
        of_layer: dict[str, tuple[int, ...]] = {
            "attn_norm": (WIDTH,),
            "attn_q": (WIDTH, WIDTH),
            "attn_k": (narrow, WIDTH),
            "attn_v": (narrow, WIDTH),
            "attn_output": (WIDTH, WIDTH),
            "ffn_norm": (WIDTH,),
            "ffn_gate": (INNER, WIDTH),
            "ffn_up": (INNER, WIDTH),
            "ffn_down": (WIDTH, INNER),
        }
        for name, shape in of_layer.items():
            found[f"blk.{layer}.{name}.weight"] = shape
    return found


if __name__ == "__main__":
    main()
