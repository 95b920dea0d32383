"""The published ctypes client on this library: import, log callback, information, edges, conversion.

Run by scripts/test_clients.sh, which installs stable-diffusion-cpp-python without its own build of a library and names
ours in STABLE_DIFFUSION_CPP_LIB.
"""
import ctypes
import os
import sys
import tempfile
import unittest

import stable_diffusion_cpp as client
from stable_diffusion_cpp import stable_diffusion_cpp as raw


class Client(unittest.TestCase):
    def test_library_is_ours(self):
        self.assertIn(b"rust", raw.sd_version())
        self.assertEqual(raw.sd_commit(), b"885f01a5")

    def test_information(self):
        self.assertIn(b"System Info", raw.sd_get_system_info())
        self.assertGreaterEqual(raw.sd_get_num_physical_cores(), 1)

    def test_log_callback_hears_a_failing_conversion(self):
        lines = []

        @raw.sd_log_callback
        def hear(level, text, data):
            lines.append((level, text))

        raw.sd_set_log_callback(hear, None)
        try:
            done = raw.convert(b"/nonexistent", b"", b"/nonexistent/out.gguf", 8, b"", False)
        finally:
            raw.sd_set_log_callback(ctypes.cast(None, raw.sd_log_callback), None)
        self.assertFalse(done)
        self.assertTrue(lines)
        for level, text in lines:
            self.assertIn(level, range(4))
            self.assertRegex(text.decode(), r"^[\w.]+:\d+ *- .*\n$")

    def test_object_without_model(self):
        self.assertIsNotNone(client.StableDiffusion())

    def test_edges(self):
        from PIL import Image
        picture = Image.new("RGB", (64, 48), "black")
        picture.paste((255, 255, 255), (20, 10, 44, 38))
        edges = client.StableDiffusion().preprocess_canny(picture)
        self.assertEqual(edges.size, picture.size)
        self.assertEqual({p for p in edges.convert("L").getdata()} - {0, 255}, set())
        self.assertGreater(sum(p == 255 for p in edges.convert("L").getdata()), 20)

    def test_conversion(self):
        import numpy
        from safetensors.numpy import save_file
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(folder, "model.safetensors")
            target = os.path.join(folder, "model.gguf")
            weights = numpy.linspace(-1, 1, 64 * 64, dtype=numpy.float32).reshape(64, 64)
            save_file({"model.diffusion_model.time_embed.0.weight": weights}, source)
            self.assertTrue(client.StableDiffusion().convert(source, output_path=target, output_type="q8_0"))
            with open(target, "rb") as file:
                self.assertEqual(file.read(4), b"GGUF")


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
