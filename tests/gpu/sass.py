"""Machine code as nvdisasm prints it, and every way a thread may take through it. What is proven on it: orders.py."""

import functools
import re
from dataclasses import dataclass

DISPATCH_BARRIER = "0x1"  # kSwitchLoopBarrierIdx of Triton's lowering
CYCLE = 3  # meetings at it for each warp_specialize

INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@(!?)(U?P\w)\s+)?([A-Z][A-Z0-9_.]*)\s*([^;]*)")
LABEL = re.compile(r"^(\.L\w+|\$\w[\w$]*):")
TARGET = re.compile(r"\.L_\w+")
CALLED = re.compile(r"\((\$\w[\w$]*)\)")
PREDICATE = re.compile(r"\bU?P[0-9]\b")
# Control flow that is not followed here: code that has it is refused, but for calls of leaves.
STRANGE = re.compile(r"CALL|RET|JM|BREAK|BMOV|RPCMOV|RTT|KILL|WARPSYNC\.COLLECTIVE")
# Families that may reach shared memory, those of them that reach other memory, and those that do not read or write it.
MEMORY = re.compile(r"U?LD|U?ST|AT|RED|SYNCS|UTM|UTC|UBLK|[A-Z]GMMA")
ELSEWHERE = re.compile(r"U?LDC|LDG(?!STS)|STG|LDL|STL|UTMACMD")
ARRIVAL = re.compile(r"SYNCS\.ARRIVE|ARRIVES")
WAIT = re.compile(r"SYNCS\.PHASECHK")
NEVER = {"Read": re.compile(r"STS"), "Write": re.compile(r"LDS|[A-Z]GMMA")}


class Unclear(ValueError):
    """The code has something that this analysis does not follow."""


@dataclass(frozen=True)
class Instruction:
    offset: int
    guard: str | None  # the predicate it is executed under
    wanted: bool  # the value of that predicate
    opcode: str
    operands: str

    @property
    def barrier(self) -> str | None:
        """The number of the barrier of all threads it waits at; Unclear for other uses of the dispatch's."""
        if not self.opcode.startswith("BAR."):
            return None
        number, *count = (word.strip() for word in self.operands.split(","))
        if number.startswith("R") and count == ["0x80"]:
            return None  # of a warpgroup: kernels/device/sm90/team.py
        if not number.startswith("0x") or (number == DISPATCH_BARRIER and (count or self.opcode[:8] != "BAR.SYNC")):
            raise Unclear(f"{self.opcode} {self.operands} at {self.offset:#x}")
        return None if count else number

    @property
    def steers(self) -> bool:
        return self.opcode.split(".")[0] in ("BRA", "BRX", "EXIT", "BSYNC")

    def may(self, access: str) -> bool:
        """Whether this can be a "Read" or a "Write" of shared memory."""
        return bool(MEMORY.match(self.opcode)) and not (
            ELSEWHERE.match(self.opcode) or NEVER[access].match(self.opcode)
        )


class Program:
    def __init__(self, text: str):
        """Of the text of one kernel, as `nvdisasm -c` prints it."""
        self.code: list[Instruction] = []
        self.labels: dict[str, int] = {}
        for line in text.splitlines():
            if found := LABEL.match(line):
                self.labels[found[1]] = len(self.code)
            elif found := INSTRUCTION.search(line):
                offset, negated, guard, opcode, operands = found.groups()
                guard = None if guard in ("PT", "UPT") and not negated else guard
                self.code.append(Instruction(int(offset, 16), guard, not negated, opcode, operands.strip()))
        self.at = {x.offset: i for i, x in enumerate(self.code)}
        self.entered = set(self.labels.values())  # places that more than the instruction above leads to

    def is_leaf(self, label: str) -> bool:
        """Whether a subroutine only computes and returns: what the compiler makes of a division's rare cases."""
        if label not in self.labels:
            return False
        waiting, seen = [self.labels[label]], set()
        while waiting:
            i = waiting.pop()
            if i in seen:
                continue
            seen.add(i)
            x = self.code[i]
            if x.opcode == "RET.REL.NODEC" and not x.guard:
                continue
            if MEMORY.match(x.opcode) or x.opcode.startswith(("BAR", "EXIT")) or i + 1 == len(self.code):
                return False
            waiting += self.jumps(i, frozenset())  # Unclear where it calls, or leads where its own BSSY would tell
            if x.guard or self.goes_on(i):
                waiting.append(i + 1)
        return True

    def returns_below(self, i: int) -> bool:
        """Whether a call is of a leaf that is told, by the instruction above, to return to the one below."""
        x, above = self.code[i], self.code[i - 1]
        called, told = CALLED.search(x.operands), re.fullmatch(r"R\d+, 0x([0-9a-f]+)", above.operands)
        if x.opcode != "CALL.REL.NOINC" or x.guard or i in self.entered or i + 1 == len(self.code) or not called:
            return False
        if above.opcode != "MOV" or above.guard or not told:
            return False
        return int(told[1], 16) == self.code[i + 1].offset and self.is_leaf(called[1])

    def jumps(self, i: int, joins: frozenset) -> list[int]:
        """Where an instruction may lead to other than to the next; `joins`: what BSSY has put into which register."""
        x = self.code[i]
        if STRANGE.match(x.opcode):
            raise Unclear(f"{x.opcode} at {x.offset:#x}")
        found = TARGET.findall(x.operands) if x.steers else []
        if x.opcode == "BSYNC":
            found = [label for register, label in joins if register == x.operands]
        lost = not found and x.opcode.startswith(("BR", "BSYNC"))
        if lost or not set(found) <= set(self.labels):
            raise Unclear(f"{x.opcode} {x.operands} at {x.offset:#x}")
        return [self.labels[label] for label in found]

    def goes_on(self, i: int) -> bool:
        """Whether the next instruction may follow even where this one is executed."""
        x = self.code[i]
        kind = x.opcode.split(".")[0]
        return kind not in ("BRX", "EXIT", "BRA") or (kind == "BRA" and not x.operands.startswith("`"))

    def step(self, i: int, count: int, known: frozenset, joins: frozenset):
        """(instruction, meetings, known predicates, joins) that may follow."""
        x = self.code[i]
        if x.opcode.startswith("CALL") and self.returns_below(i):
            yield i + 1, count, frozenset(), joins  # it may have changed any predicate
            return
        meets = x.barrier == DISPATCH_BARRIER
        jumps = self.jumps(i, joins)
        if x.opcode == "BSSY":
            label = TARGET.search(x.operands)
            if x.guard or not label:
                raise Unclear(f"{x.opcode} {x.operands} at {x.offset:#x}, perhaps under a condition")
            register = x.operands.split(",")[0].strip()
            joins = frozenset((*(join for join in joins if join[0] != register), (register, label[0])))
        values = [True, False]
        if x.guard is None:
            values = [True]
        elif (x.guard, True) in known or (x.guard, False) in known:
            values = [x.wanted == ((x.guard, True) in known)]
        for executed in values:
            then = known
            if x.guard and (meets or x.steers):
                then = then | {(x.guard, executed == x.wanted)}
            if not (meets or x.steers):
                changed = set(PREDICATE.findall(x.operands))
                every = re.search(r"\bU?PR\b", x.operands)
                then = frozenset(p for p in then if not every and p[0] not in changed)
            after = (count + (meets and executed)) % CYCLE
            if (not executed or self.goes_on(i)) and i + 1 < len(self.code):
                yield i + 1, after, then, joins
            if executed:
                yield from ((j, after, then, joins) for j in jumps)

    @functools.cached_property
    def states(self) -> set[tuple]:
        """All that `step` leads to from the first instruction on."""
        waiting = [(0, 0, frozenset(), frozenset())]
        seen = set(waiting)
        while waiting:
            for state in self.step(*waiting.pop()):
                if state not in seen:
                    seen.add(state)
                    waiting.append(state)
        return seen
