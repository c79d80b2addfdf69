"""embed_step.py: a cubin as an object."""

import unittest

from embed_step import assembly
from nvcc_steps import StepError


class AssemblyTest(unittest.TestCase):
    def test_a_cubin(self) -> None:
        lines = assembly("body", "__tvm_ffi__cubin_body", "out/a.cubin", "10.3a").splitlines()
        self.assertIn('.section .cubin.sm_103a.body,"a",%progbits', lines)
        at = lines.index("__tvm_ffi__cubin_body:")
        self.assertEqual(lines[at + 1 : at + 3], ['.incbin "out/a.cubin"', "__tvm_ffi__cubin_body_end:"])
        self.assertIn(".hidden __tvm_ffi__cubin_body, __tvm_ffi__cubin_body_end", lines)

    def test_what_is_in_the_place_of_one(self) -> None:
        """It is in no section that the census would read as a cubin."""
        text = assembly("body", "body_image", "", "")
        self.assertIn("body_image:\n.zero 64\nbody_image_end:\n", text)
        self.assertNotIn(".cubin", text)

    def test_names_that_are_no_identifiers(self) -> None:
        for name, symbol, words in (
            ("a-b", "a", "embedded cubin 'a-b': expected an identifier of C as its name, found 'a-b'"),
            ("a", "1", "embedded cubin 'a': expected an identifier of C as its symbol, found '1'"),
        ):
            with self.subTest(words), self.assertRaises(StepError) as caught:
                assembly(name, symbol, "", "")
            self.assertIn(words, str(caught.exception))
            self.assertIn("To do: correct it where the module is declared", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
