#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The largest resident size of each rank, from its start to its end, is that of its weights and of
the KV cache that it uses: no second copy, no pages of the files, at no time."""

import json
import pathlib
import shutil
import struct
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import program  # noqa: E402

LAYERS, HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, VOCAB = 16, 1536, 4096, 24, 12, 384
TOKENS = 200
# Runs the program and notes its largest resident size in a file for its rank.
MEASURED = """#!/usr/bin/env python3
import os, resource, subprocess, sys
code = subprocess.call([{tandem!r}, *sys.argv[1:]])
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
open({folder!r} + "/peak." + os.environ.get("OMPI_COMM_WORLD_RANK", "0"), "w").write(str(peak))
sys.exit(code)
"""


def shapes():
    yield "model.embed_tokens.weight", [VOCAB, HIDDEN]
    yield "model.norm.weight", [HIDDEN]
    yield "lm_head.weight", [VOCAB, HIDDEN]
    head = HIDDEN // HEADS
    for layer in range(LAYERS):
        for name, shape in (("input_layernorm", [HIDDEN]), ("post_attention_layernorm", [HIDDEN]),
                            ("self_attn.q_proj", [HIDDEN, HIDDEN]),
                            ("self_attn.k_proj", [KV_HEADS * head, HIDDEN]),
                            ("self_attn.v_proj", [KV_HEADS * head, HIDDEN]),
                            ("self_attn.o_proj", [HIDDEN, HIDDEN]),
                            ("mlp.gate_proj", [INTERMEDIATE, HIDDEN]),
                            ("mlp.up_proj", [INTERMEDIATE, HIDDEN]),
                            ("mlp.down_proj", [HIDDEN, INTERMEDIATE])):
            yield f"model.layers.{layer}.{name}.weight", shape


def make_model(folder):
    """Zeros, in a file with holes: it takes no room on the disk, but all of it in memory."""
    fixture = program.MODELS / "llama-bf16"
    config = json.loads((fixture / "config.json").read_text())
    config.update(num_hidden_layers=LAYERS, hidden_size=HIDDEN, intermediate_size=INTERMEDIATE,
                  num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, vocab_size=VOCAB,
                  head_dim=HIDDEN // HEADS, max_position_embeddings=8192, tie_word_embeddings=False)
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(fixture / name, folder / name)
    header, at = {}, 0
    for name, shape in shapes():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)


class Memory(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        make_model(self.folder)
        self.measured = self.folder / "measured"
        self.measured.write_text(MEASURED.format(tandem=program.TANDEM, folder=str(self.folder)))
        self.measured.chmod(0o755)

    def peaks(self, model, ranks, tokens):
        """The largest resident size of each rank that answers a prompt of so many tokens."""
        done = program.run("generate", "--model", str(model), "--prompt-file", "-", "--device", "cpu",
                           "--threads", "1", "--max-tokens", "2", "--temperature", "0",
                           "--kv-cache-memory", "1GiB",
                           ranks=ranks, stdin=b"a" * tokens, program=str(self.measured))
        self.assertEqual(done.code, 0, done.log())
        self.assertIn("resident so far, on the largest rank", done.log())
        return [int((self.folder / f"peak.{rank}").read_text()) for rank in range(ranks)]

    def test_peak_is_weights_and_cache(self):
        for ranks in (1, 2):
            # The program itself, which with CUDA's libraries is large.
            own = self.peaks(program.MODELS / "llama-bf16", ranks, 8)
            peaks = self.peaks(self.folder, ranks, TOKENS)
            inspected = json.loads(program.run("inspect", "--model", str(self.folder), "--json",
                                               "--tensor-parallel-size", str(ranks)).text())
            for rank, part in enumerate(inspected["ranks"]):
                needed = part["weight_bytes"] + TOKENS * part["kv_bytes_per_token"]
                print(f"{ranks} ranks, rank {rank}: weights and KV {needed / 1e6:.0f} MB, peak "
                      f"{peaks[rank] / 1e6:.0f} MB, of it the program {own[rank] / 1e6:.0f} MB")
                self.assertLess(peaks[rank] - own[rank], 1.1 * needed)
                if own[rank] < 30e6:
                    self.assertLess(peaks[rank], 1.15 * needed)


if __name__ == "__main__":
    unittest.main()
