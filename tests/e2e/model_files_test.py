#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models as they lie on people's disks: hub names in the local cache, snapshots of symlinks, parts
that are missing or too many, types that are not read."""

import json
import pathlib
import shutil
import struct
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import program  # noqa: E402

ASK = ["--prompt", "The quick brown fox", "--temperature", "0", "--max-tokens", "6", "--json"]


def answer(model, **options):
    done = program.run("generate", "--model", str(model), *ASK, **options)
    assert done.code == 0, done.log()
    return json.loads(done.text())["outputs"]


class HubCache(unittest.TestCase):
    """A cache as huggingface_hub lays it out: files are symlinks to blobs named by their hash."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.home = pathlib.Path(temporary.name)

    def put(self, source, name, cache):
        repository = cache / ("models--" + name.replace("/", "--"))
        snapshot = repository / "snapshots" / "0123abcd"
        for folder in (repository / "blobs", repository / "refs", snapshot):
            folder.mkdir(parents=True)
        (repository / "refs/main").write_text("0123abcd")
        files = sorted(source.iterdir()) if source.is_dir() else [source]
        for number, file in enumerate(files):
            blob = repository / "blobs" / f"{number:040x}"
            shutil.copyfile(file, blob)
            (snapshot / file.name).symlink_to(f"../../blobs/{blob.name}")
        return snapshot

    def test_names_are_found_offline(self):
        cases = [("llama-bf16", {"HF_HUB_CACHE": str(self.home / "a")}, self.home / "a"),
                 ("llama-9q3kv", {"HF_HOME": str(self.home / "b"), "HF_HUB_CACHE": ""},
                  self.home / "b/hub"),
                 ("llama-bf16.gguf", {"HF_HUB_CACHE": str(self.home / "c")}, self.home / "c")]
        for fixture, environment, cache in cases:
            self.put(program.MODELS / fixture, "some-org/some.model", cache)
            for ranks in (1, 2):
                with self.subTest(fixture=fixture, ranks=ranks):
                    self.assertEqual(
                        answer("some-org/some.model", ranks=ranks, environment=environment),
                        answer(program.MODELS / fixture, ranks=ranks))

    def test_a_download_that_stopped_half_way(self):
        snapshot = self.put(program.MODELS / "llama-bf16", "o/m", self.home)
        lost = snapshot / "model-00002-of-00003.safetensors"
        lost.resolve().unlink()  # the link stays, and leads nowhere
        for ranks in (1, 2):
            done = program.run("generate", "--model", "o/m", *ASK, ranks=ranks,
                               environment={"HF_HUB_CACHE": str(self.home)})
            self.assertNotEqual(done.code, 0)
            self.assertIn(lost.name, done.log())
            self.assertIn("download", done.log())


class Tensors(unittest.TestCase):
    """Missing, extra and unreadable tensors are named, whichever file of several they are in."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name) / "model"
        shutil.copytree(program.MODELS / "llama-bf16", self.folder)

    def change(self, change):
        """Applies `change` to header and data of the last file, and brings the index up to date."""
        file = sorted(self.folder.glob("model-*.safetensors"))[-1]
        raw = file.read_bytes()
        length = struct.unpack("<Q", raw[:8])[0]
        header, data = json.loads(raw[8:8 + length]), bytearray(raw[8 + length:])
        change(header, data)
        text = json.dumps(header).encode()
        file.write_bytes(struct.pack("<Q", len(text)) + text + data)
        index = self.folder / "model.safetensors.index.json"
        content = json.loads(index.read_text())
        names = {name: at for name, at in content["weight_map"].items() if at != file.name}
        names.update({name: file.name for name in header if name != "__metadata__"})
        index.write_text(json.dumps({**content, "weight_map": names}))

    def refused(self, *wanted):
        done = program.run("generate", "--model", str(self.folder), *ASK)
        self.assertEqual(done.code, 2, done.log())
        said = [line for line in done.log().splitlines() if line.startswith("tandem: ")]
        self.assertEqual(len(said), 1, done.log())
        for part in wanted:
            self.assertIn(part, said[0])

    def test_a_missing_one(self):
        def rename(header, _):
            header["model.layers.1.other.weight"] = header.pop("model.norm.weight")
        self.change(rename)
        self.refused("lacks tensor model.norm.weight")

    def test_one_too_many(self):
        def add(header, data):
            header["model.layers.1.mlp.expert.weight"] = {
                "dtype": "BF16", "shape": [2, 4], "data_offsets": [len(data), len(data) + 16]}
            data.extend(bytes(16))
        self.change(add)
        self.refused("holds tensor model.layers.1.mlp.expert.weight", "LlamaForCausalLM")

    def test_types_that_are_not_read(self):
        for name in ("F8_E4M3", "F8_E5M2", "I8"):
            def retype(header, _):
                tensor = header["model.norm.weight"]
                tensor.update(dtype=name, shape=[2 * tensor["shape"][0]])
            with self.subTest(type=name):
                self.change(retype)
                self.refused("model.norm.weight", f"type {name}", "BF16, F16 or F32")
                shutil.rmtree(self.folder)
                shutil.copytree(program.MODELS / "llama-bf16", self.folder)


if __name__ == "__main__":
    unittest.main()
