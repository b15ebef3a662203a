"""A tiny language model with random weights for llama.cpp: `python tiny_gguf.py tiny.gguf` (needs `pip install gguf`).

It is of llama's architecture with a whole tokenizer: every byte is a token, and beside them there are made-up words. It
generates words alone, one after the other, and never ends by itself, so that each request costs the same. The same seed
gives the same file.
"""

import argparse

import gguf
import numpy as np

SPECIAL = ["<unk>", "<s>", "</s>"]
HEAD = 32  # numbers in a head of attention
CONTEXT = 2048
FAR = -1e4  # added to what must never be chosen


def tokens(words):
    """Texts, scores and kinds of all tokens."""
    texts = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *(f"▁w{number}" for number in range(words))]
    kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
    kinds += [gguf.TokenType.BYTE] * 256 + [gguf.TokenType.NORMAL] * words
    return texts, [0.0 if kind != gguf.TokenType.NORMAL else -1.0 for kind in kinds], kinds


def weights(layers, width, words, seed):
    """All tensors by their names.

    The first number of each token's vector is the same and no layer changes it: by it, the last matrix can keep bytes
    and the end of the text from being chosen.
    """
    chance = np.random.default_rng(seed)

    def matrix(rows, columns):
        return (chance.standard_normal((rows, columns)) / np.sqrt(columns)).astype(np.float32)

    count, ones = len(SPECIAL) + 256 + words, np.ones(width, np.float32)
    embedding, output = matrix(count, width) * np.sqrt(width), matrix(count, width)
    embedding[:, 0] = 4.0
    output[:, 0] = 0.0
    output[: -words or None, 0] = FAR
    yield "token_embd.weight", embedding.astype(np.float32)
    for layer in range(layers):
        made = {name: matrix(width, width) for name in ("attn_q", "attn_k", "attn_v", "attn_output")}
        made |= {"ffn_gate": matrix(2 * width, width), "ffn_up": matrix(2 * width, width)}
        made["ffn_down"] = matrix(width, 2 * width)
        for name in ("attn_output", "ffn_down"):
            made[name][0] = 0.0
        for name in ("attn_norm", "ffn_norm"):
            yield f"blk.{layer}.{name}.weight", ones
        for name, values in made.items():
            yield f"blk.{layer}.{name}.weight", values
    yield "output_norm.weight", ones
    yield "output.weight", output


def main():
    asked = argparse.ArgumentParser(description="Write a tiny language model with random weights for llama.cpp.")
    asked.add_argument("file")
    asked.add_argument("--layers", type=int, default=4)
    asked.add_argument("--width", type=int, default=256, help=f"a multiple of {HEAD}")
    asked.add_argument("--words", type=int, default=1024)
    asked.add_argument("--seed", type=int, default=0)
    wanted = asked.parse_args()
    if wanted.width % HEAD:
        asked.error(f"--width {wanted.width} is no multiple of {HEAD}")

    writer = gguf.GGUFWriter(wanted.file, "llama")
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(wanted.width)
    writer.add_block_count(wanted.layers)
    writer.add_feed_forward_length(2 * wanted.width)
    writer.add_head_count(wanted.width // HEAD)
    writer.add_head_count_kv(wanted.width // HEAD)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HEAD)
    texts, scores, kinds = tokens(wanted.words)
    writer.add_vocab_size(len(texts))
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(texts)
    writer.add_token_scores(scores)
    writer.add_token_types(kinds)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    for name, values in weights(wanted.layers, wanted.width, wanted.words, wanted.seed):
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
