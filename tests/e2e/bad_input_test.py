#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What bad input gets: one clear sentence that ends in what to do, said once, a non-zero exit on
every rank, within seconds; never a hang or a crash. Each case runs the real program on one rank and
on two; the broken files are made here."""

from concurrent import futures
import json
import pathlib
import shutil
import struct
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import program  # noqa: E402

MODEL = program.MODELS / "llama-9q3kv"
SPLIT = program.MODELS / "llama-bf16"
GGUF = program.MODELS / "llama-bf16.gguf"
SECONDS = 60  # a start of MPI on a busy machine included


def safetensors(header, data=b"", header_bytes=None):
    """A safetensors file's bytes; `header_bytes` overrides what it says of its header's length."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if header_bytes is None else header_bytes) + text + data


def read_safetensors(path):
    raw = path.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    return json.loads(raw[8:8 + length]), raw[8 + length:]


class BadInput(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.runs = []

    def tearDown(self):
        # A start of MPI is mostly waiting, so some runs at a time cost no more than one.
        with futures.ThreadPoolExecutor(4) as pool:
            for run, done in [(run, pool.submit(program.run, *run[0], ranks=run[1], seconds=120,
                                                **run[3])) for run in self.runs]:
                with self.subTest(arguments=run[0], ranks=run[1]):
                    self.check(run[1], run[2], done.result())

    # ---- tools -----------------------------------------------------------------------------------

    def refuses(self, arguments, *wanted, ranks=(1, 2), **more):
        """The program says one sentence with all of `wanted` in it, and ends on every rank. The
        runs are done together, after the test's own lines."""
        self.runs += [(arguments, size, wanted, more) for size in ranks]

    def check(self, size, wanted, done):
        log = done.log()
        said = [line for line in log.splitlines() if line.startswith("tandem: ")]
        self.assertEqual(len(said), 1, log)
        for part in wanted:
            self.assertIn(part, said[0])
        self.assertEqual(len(done.codes), size, log)
        # 143: the launcher was faster, once another rank had left.
        self.assertLessEqual(set(done.codes.values()), {2, 143}, log)
        self.assertIn(2, done.codes.values(), log)
        self.assertNotEqual(done.code, 0)
        self.assertLess(done.seconds, SECONDS)
        self.assertNotIn(b"tandem", done.out)
        for word in ("Segmentation", "terminate called", "Aborted", "Signal:", "rank 0: "):
            self.assertNotIn(word, log)
        if size == 1:  # mpirun adds lines of its own
            self.assertEqual(done.out, b"")
            others = [line for line in log.splitlines() if line not in said]
            self.assertTrue(all(" info | " in line or " warn | " in line for line in others), log)

    def new_path(self, name):
        """A path that no other run of this test uses."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        return folder / name

    def model(self, source=MODEL, **config):
        """A copy of a fixture, with keys of its config.json changed (None: taken out)."""
        folder = self.new_path("model")
        shutil.copytree(source, folder)
        if config:
            values = json.loads((folder / "config.json").read_text())
            values.update(config)
            (folder / "config.json").write_text(
                json.dumps({key: value for key, value in values.items() if value is not None}))
        return folder

    def generate(self, model, *wanted, more=(), **options):
        self.refuses(["generate", "--model", str(model), "--prompt", "Hi", *more], *wanted, **options)

    def weights(self, content, *wanted):
        """`content` in the place of the model's one weight file."""
        folder = self.model()
        (folder / "model.safetensors").write_bytes(content)
        self.generate(folder, str(folder), *wanted)

    def changed_tensor(self, name, change, *wanted):
        header, data = read_safetensors(MODEL / "model.safetensors")
        change(header[name])
        self.weights(safetensors(header, data), name, *wanted)

    # ---- which model -----------------------------------------------------------------------------

    def test_a_missing_folder_or_file(self):
        self.generate("/nowhere/model", "there is no model /nowhere/model", "give --model")
        self.generate("nothing.gguf", "there is no model nothing.gguf", "give --model")
        self.generate(self.folder, "neither a config.json nor a .gguf file", "give --model")
        self.refuses(["generate", "--prompt", "Hi"], "no model was named", "--model FOLDER")
        self.refuses(["generate", "--model", str(MODEL), "--prompt-file", "/nowhere/prompt"],
                     "--prompt-file /nowhere/prompt cannot be read")

    def test_a_hub_name_that_was_not_downloaded(self):
        self.generate("some-org/some-model", "hf download some-org/some-model",
                      environment={"HF_HUB_CACHE": str(self.folder)})

    def test_a_folder_without_weights_or_tokenizer(self):
        folder = self.model()
        (folder / "model.safetensors").unlink()
        self.generate(folder, "there are no .safetensors files", "--load-format dummy")
        folder = self.model()
        (folder / "tokenizer.json").unlink()
        self.generate(folder, "tokenizer.json")
        folder = self.model()
        (folder / "tokenizer.json").write_text('{"model": ')
        self.generate(folder, "tokenizer.json")

    def test_a_config_that_is_none(self):
        for text, wanted in (("", "config.json"), ("{", "config.json"), ("[1]", "one JSON object"),
                             ('{"architectures": ["LlamaForCausalLM"]}', "config.json")):
            folder = self.model()
            (folder / "config.json").write_text(text)
            self.generate(folder, wanted)

    def test_an_unknown_architecture(self):
        folder = self.model(architectures=["MambaForCausalLM"], model_type="mamba")
        self.generate(folder, "MambaForCausalLM", "LlamaForCausalLM", "Qwen3ForCausalLM")

    def test_a_quantized_checkpoint(self):
        folder = self.model(quantization_config={"quant_method": "awq", "bits": 4})
        self.generate(folder, "quantization_config", "awq")

    # ---- safetensors -----------------------------------------------------------------------------

    def test_truncated_safetensors(self):
        whole = (MODEL / "model.safetensors").read_bytes()
        self.weights(whole[:-1000], "download it again")
        self.weights(whole[:100], "truncated", "download it again")
        self.weights(whole[:5], "too few for a safetensors file")
        self.weights(b"", "safetensors", "download it again")

    def test_a_header_longer_than_the_file(self):
        self.weights(safetensors({}, b"1234", header_bytes=1 << 20), "its header has 1048576 bytes")
        self.weights(safetensors({}, b"1234", header_bytes=(1 << 64) - 1), "its header has")

    def test_a_header_that_is_no_json(self):
        self.weights(safetensors(b"{not json}"), "download it again")

    def test_offsets_that_overlap_or_leave_the_file(self):
        name = "model.norm.weight"
        def move(by):
            def change(tensor):
                tensor["data_offsets"] = [at + by for at in tensor["data_offsets"]]
            return change
        self.changed_tensor(name, move(-4), "download it again")
        self.changed_tensor(name, move(1 << 40), "lies at bytes", "download it again")
        self.changed_tensor(name, lambda t: t.update(data_offsets=[-8, 280]), "download it again")

    def test_tensors_that_contradict_the_config(self):
        def retyped(tensor):
            tensor.update(dtype="F16", shape=[tensor["shape"][0], 2 * tensor["shape"][1]])
        self.changed_tensor("model.layers.0.mlp.down_proj.weight", retyped, "has shape",
                            "config.json asks for")
        self.changed_tensor("model.layers.0.mlp.down_proj.weight",
                            lambda t: t.update(dtype="F8_E4M3"), "F8_E4M3", "BF16, F16 or F32")
        self.generate(self.model(dtype="bfloat16"), "is F32 but config.json says bfloat16",
                      "torch_dtype")
        self.generate(self.model(hidden_size=144), "config.json asks for")
        self.generate(self.model(num_hidden_layers=3), "lacks tensor model.layers.2.")
        self.generate(self.model(num_hidden_layers=1), "holds tensor model.layers.1.")

    def test_an_index_that_names_a_missing_shard(self):
        folder = self.model(SPLIT)
        (folder / "model-00002-of-00003.safetensors").unlink()
        self.generate(folder, "model-00002-of-00003.safetensors", "not in the folder")
        folder = self.model(SPLIT)
        index = folder / "model.safetensors.index.json"
        index.write_text(index.read_text().replace("model-00002-of", "../model-00002-of"))
        self.generate(folder, "is not a file name")

    # ---- GGUF ------------------------------------------------------------------------------------

    def gguf(self, change, *wanted):
        content = bytearray(GGUF.read_bytes())
        changed = change(content)
        content = content if changed is None else changed
        path = self.new_path("broken.gguf")
        path.write_bytes(content)
        self.generate(path, str(path), *wanted)

    def test_gguf_with_wrong_magic_version_or_counts(self):
        def put(at, form, value):
            return lambda content: struct.pack_into(form, content, at, value)
        self.gguf(put(0, "<4s", b"GGML"), "does not start with the letters GGUF", "check --model")
        self.gguf(put(4, "<I", 2), "has GGUF version 2", "convert the model again")
        self.gguf(put(4, ">I", 3), "big-endian", "download the little-endian one")
        self.gguf(put(8, "<Q", 1 << 62), "download it again")   # tensors
        self.gguf(put(16, "<Q", 1 << 62), "download it again")  # metadata pairs
        self.gguf(put(8, "<Q", 1), "download")                  # fewer tensors than there are

    def test_gguf_with_wrong_alignment(self):
        def with_alignment(value):
            pair = struct.pack("<Q", 17) + b"general.alignment" + struct.pack("<II", 4, value)
            def change(content):
                pairs = struct.unpack_from("<Q", content, 16)[0]
                struct.pack_into("<Q", content, 16, pairs + 1)
                return content[:24] + pair + content[24:]
            return change
        self.gguf(with_alignment(0), "general.alignment")
        self.gguf(with_alignment(48), "general.alignment")
        self.gguf(with_alignment(1 << 31), "general.alignment")

    def test_truncated_gguf(self):
        size = GGUF.stat().st_size
        for kept in (0, 3, 20, 1000, size // 2, size - 1):
            self.gguf(lambda content: content[:kept], "download it again")

    # ---- prompts ---------------------------------------------------------------------------------

    def test_invalid_utf8_in_a_prompt(self):
        bad = b"caf\xe9"
        file = self.folder / "prompt.txt"
        file.write_bytes(bad)
        base = ["--model", str(MODEL)]
        for command in ("generate", "tokenize"):
            for more in ([], ["--chat"]):
                self.refuses([command, *base, *more], "UTF-8", stdin=bad)
        self.refuses(["generate", *base, "--prompt", bad], "UTF-8")
        self.refuses(["generate", *base, "--prompt-file", str(file)], "UTF-8")

    def test_a_prompt_longer_than_the_context(self):
        self.generate(MODEL, "the prompt has", "raise --max-model-len",
                      more=["--prompt", "word " * 400])
        self.generate(MODEL, "--max-model-len 300", "use --max-model-len 256",
                      more=["--max-model-len", "300"])

    def test_no_prompt(self):
        self.refuses(["generate", "--model", str(MODEL)], "--prompt is empty")
        self.refuses(["tokenize", "--model", str(MODEL)], "--text is empty")
        self.generate(MODEL, "--prompt is empty", more=["--prompt", ""])

    # ---- ranks -----------------------------------------------------------------------------------

    def test_more_ranks_than_can_get_a_head(self):
        one_head = self.model(num_attention_heads=1, num_key_value_heads=1)
        self.generate(one_head, "use at most 1 rank", "mpirun -n 1", ranks=(2,),
                      more=["--load-format", "dummy"])
        self.refuses(["inspect", "--model", str(MODEL), "--tensor-parallel-size", "10"],
                     "9 attention heads", "mpirun -n 6")

    def test_a_tensor_parallel_size_unlike_the_world_size(self):
        self.generate(MODEL, "--tensor-parallel-size 3 needs 3 ranks",
                      "run mpirun -n 3 tandem generate", more=["--tensor-parallel-size", "3"])
        self.generate(MODEL, "--tensor-parallel-size", more=["--tensor-parallel-size", "-1"])

    def test_singletons_instead_of_one_job(self):
        # What the processes of another MPI's launcher, and of srun without PMIx, see.
        ask = ["generate", "--model", str(MODEL), "--prompt", "Hi"]
        self.refuses(ask, "2 processes", "mpirun.openmpi -n 2", ranks=(1,),
                     environment={"PMI_SIZE": "2", "PMI_RANK": "0"})
        self.refuses(ask, "2 processes without PMIx", "srun --mpi=pmix -n 2", ranks=(1,),
                     environment={"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_ID": "0"})

    # ---- options ---------------------------------------------------------------------------------

    def test_unknown_commands_and_options(self):
        self.refuses(["generat"], "did you mean tandem generate?")
        self.refuses(["frobnicate"], "see tandem --help")
        self.generate(MODEL, "did you mean --temperature?", more=["--temprature", "1"])
        self.generate(MODEL, "see tandem generate --help", more=["--frobnicate"])
        self.generate(MODEL, "stray words belongs to no option", more=["stray words"])
        self.refuses(["inspect", "--modle", "x"], "did you mean --model?")

    def test_a_folder_where_a_file_is_wanted(self):
        folder = str(self.folder)
        base = ["--model", str(MODEL)]
        for arguments, wanted in (
                (["generate", *base, "--prompt-file", folder], "--prompt-file " + folder),
                (["generate", *base, "--prompt", "Hi", "--chat", "--tools", folder], "--tools"),
                (["tokenize", *base, "--text-file", folder], "--text-file " + folder),
                (["serve", *base, "--chat-template", folder], "--chat-template"),
                (["plan", *base, "--cluster", folder], "--cluster"),
                (["plan", *base, "--doctor", folder], "--doctor"),
                (["waits", "compare", folder, folder], "waits --waits"),
                (["bench", "throughput", *base, "--trace", "azure:" + folder], "readable file"),
                (["bench", "scaling", "--results", folder], "--results")):
            self.refuses(arguments, wanted, folder, ranks=(1,))

    def test_results_that_could_not_be_written(self):
        """Said before the work that would be lost."""
        base = ["--model", str(MODEL), "--device", "cpu"]
        gone = str(self.folder / "no" / "such.json")
        for command, flag, ranks in ((["bench", "latency", *base], "--json", (1, 2)),
                                     (["bench", "throughput", *base], "--json", (1, 2)),
                                     (["bench", "mixed", *base], "--json", (1, 2)),
                                     (["bench", "overlap", *base], "--json", (2,)),
                                     (["bench", "scaling", *base, "--sizes", "1", "2"], "--csv", (1,)),
                                     (["doctor", "--device", "cpu"], "--rates", (1, 2)),
                                     (["waits", *base], "--waits", (1, 2)),
                                     (["generate", *base, "--prompt", "Hi"], "--waits", (1, 2)),
                                     (["serve", *base], "--waits", (1,))):
            self.refuses([*command, flag, gone], flag, gone, "cannot be written", "name a file",
                         ranks=ranks)
        for path in ("x.svg", "./x.svg"):
            self.refuses(["bench", "scaling", *base, "--sizes", "1", "2", "--csv", "x.svg", "--svg",
                          path], "--svg and --csv both name", "a file of its own", ranks=(1,))

    def test_values_out_of_range(self):
        for more, wanted in ((["--max-tokens", "many"], "--max-tokens"),
                             (["--max-tokens", "0"], "--max-tokens"),
                             (["--max-tokens", "-5"], "--max-tokens"),
                             (["--max-tokens"], "--max-tokens"),
                             (["--temperature", "-1"], "--temperature"),
                             (["--temperature", "nan"], "--temperature"),
                             (["--top-p", "0"], "--top-p"),
                             (["--top-k", "-2"], "--top-k"),
                             (["--n", "0"], "--n"),
                             (["--seed", "x"], "--seed"),
                             (["--dtype", "bfloat"], "did you mean bfloat16?"),
                             (["--device", "gpu"], "cpu, cuda"),
                             (["--load-format", "ggfu"], "did you mean gguf?"),
                             (["--weight-format", "int8"], "auto, dense"),
                             (["--load-format", "gguf"], "leave --load-format out"),
                             (["--max-num-seqs", "0"], "--max-num-seqs"),
                             (["--threads", "-1"], "--threads"),
                             (["--threads", "1000000"], "or less"),
                             (["--kv-cache-memory", "lots"], "--kv-cache-memory 2GiB"),
                             (["--step-timeout", "soon"], "--step-timeout 60"),
                             (["--stop-token-id", "-7"], "--stop-token-id"),
                             (["--dtype", "float16"], "--dtype bfloat16")):
            self.generate(MODEL, wanted, more=more, ranks=(2,))

    # ---- memory ----------------------------------------------------------------------------------

    def test_no_memory(self):
        self.generate(MODEL, "--kv-cache-memory", more=["--kv-cache-memory", "1KiB"])
        self.generate(MODEL, "lower --max-num-batched-tokens",
                      more=["--max-num-batched-tokens", "2000000000"])
        big = self.folder / "big"
        big.mkdir()
        config = json.loads((program.SOURCE / "tests/bench/models/llama-3-70b/config.json")
                            .read_text())
        config.update(num_hidden_layers=4000)  # 7 TB
        (big / "config.json").write_text(json.dumps(config))
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(MODEL / name, big / name)
        self.generate(big, "MB of memory for its weights", "free memory is", "more hosts",
                      more=["--load-format", "dummy"])


if __name__ == "__main__":
    unittest.main()
