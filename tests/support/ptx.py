"""A thread of PTX on integers and shared memory, as far as the kernels' pieces of assembly need it: what is not here is
refused. No GPU.
"""

import operator
import re

MASK, ANYTHING = 0xFFFFFFFF, 0xA5C3_5A3C
COMPARE = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
STATEMENT = re.compile(r"(?:@(!?)(\w+)\s+)?([a-z][\w.]*)\s+(.*)", re.DOTALL)
OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+")


def signed(x: int) -> int:
    return x - (1 << 32) if x >> 31 else x


def statements(assembly: str) -> list[str]:
    """One each, labels with their colon; scopes and declarations left out."""
    text = re.sub(r"\{\s*(?=\.reg)|\.reg [^;]*;", "", assembly)
    text = re.sub(r"\}\s*$", "", text)
    return [one.strip() for one in re.split(r";|(?<=:)\s", text) if one.strip()]


class Thread:
    def __init__(self, assembly: str, memory: bytearray):
        self.code, self.memory = statements(assembly), memory
        self.labels = {one[:-1]: i for i, one in enumerate(self.code) if one.endswith(":")}

    def run(self, *given: int) -> None:
        """From the first statement to the last, with these for $0, $1, ..."""
        self.registers = {f"${i}": x & MASK for i, x in enumerate(given)}
        at = 0
        while at < len(self.code):
            one = self.code[at]
            at += 1
            if one.endswith(":"):
                continue
            negated, guard, opcode, operands = STATEMENT.fullmatch(one).groups()
            if guard and bool(self.registers[guard]) == bool(negated):
                continue
            words = OPERAND.findall(operands)
            if opcode == "bra":
                at = self.labels[words[0]]
            else:
                self.execute(opcode, words)

    def value(self, word: str) -> int:
        """A register that nothing was written to holds anything."""
        if word[0].isalpha():
            return self.registers.get(word, ANYTHING)
        return self.registers[word] if word in self.registers else int(word, 0) & MASK

    def execute(self, opcode: str, words: list[str]) -> None:
        kind, *rest = opcode.split(".")
        if kind in ("ld", "st"):
            assert rest == ["shared", "v4", "b32"], opcode
            place, names = sorted(words)
            first, four = self.value(place[1:-1]), names[1:-1].replace(",", " ").split()
            assert first % 16 == 0 and len(four) == 4, words
            if kind == "ld":
                for i, name in enumerate(four):
                    self.registers[name] = int.from_bytes(self.memory[first + 4 * i : first + 4 * i + 4], "little")
            else:
                for i, name in enumerate(four):
                    self.memory[first + 4 * i : first + 4 * i + 4] = self.value(name).to_bytes(4, "little")
            return
        to, *given = words
        if kind == "setp":
            self.registers[to] = self.compared(rest, given)
            return
        if kind == "selp":
            given = given[:2] if self.registers[given[2]] else given[1:2]
        x = [self.value(word) for word in given]
        made = {
            "mov": lambda: x[0], "selp": lambda: x[0], "add": lambda: x[0] + x[1], "sub": lambda: x[0] - x[1],
            "mad": lambda: x[0] * x[1] + x[2], "and": lambda: x[0] & x[1], "xor": lambda: x[0] ^ x[1],
            "not": lambda: ~x[0], "shl": lambda: x[0] << x[1] if x[1] < 32 else 0,
            "max": lambda: max(map(signed, x)),
        }  # fmt: skip
        self.registers[to] = made[kind]() & MASK

    def compared(self, how: list[str], given: list[str]) -> bool:
        a, b = (self.value(word) for word in given[:2])
        if how[-1] == "s32":
            a, b = signed(a), signed(b)
        found = COMPARE[how[0]](a, b)
        if len(how) == 3:
            assert how[1] == "or", how
            found = found or self.registers[given[2]]
        return bool(found)
