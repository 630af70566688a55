"""Machine code as nvdisasm prints it, and what is proven on it: that barriers order two accesses.

Triton's warp_specialize dispatch: the default warps store into shared memory which partition each worker warp is to
run, and arguments of the partitions; all threads of the block meet at barrier 1, each worker warp loads its byte, and
its partition the arguments. They meet there twice more: when the partitions have taken over their arguments, and when
they end. So the stores come after 0, 3, 6 ... meetings at that barrier, the loads after 1, 4, 7 ...: that is shown here
for every path through the machine code. It orders each such store and load, in different threads too: what a thread
does between two meetings comes after all that others did before the first of them, and before all that they do after
the second. Only accesses between the same two can race.

A pipeline's stage: one warp fills it by LDGSTS once it has waited at the mbarrier that tells it is empty, and a
warpgroup, which has read it, tells so by one thread's arrival after a barrier of its own. racecheck takes an arrival
for the thread's that arrives alone, and reports the others' reads: so it does of such a ring in 40 lines of CUDA C++,
and no more once each thread arrives. What is shown here, for every path: no thread reaches an arrival from the load but
through a barrier of its warpgroup, nor the store from an arrival of its own but through a wait that succeeded. That
both speak of the same stage's mbarrier, the source says alone.
"""

import functools
import re
from collections import defaultdict
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
WAITED = "waited"
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

    @functools.cached_property
    def meetings(self) -> dict[int, set[int]]:
        """How often, modulo CYCLE, a thread may have met the others at the barrier before each offset."""
        found = defaultdict(set)
        for i, count, *_ in self.states:
            found[self.code[i].offset].add(count)
        return found

    def arrives_unmet(self, read: int) -> int | None:
        """The offset of an arrival at an mbarrier that a thread may reach from here without a barrier of threads."""
        waiting = [state for state in self.states if state[0] == self.at[read]]
        seen = set(waiting)
        while waiting:
            state = waiting.pop()
            x = self.code[state[0]]
            if ARRIVAL.match(x.opcode):
                return x.offset
            if x.opcode.startswith("BAR.SYNC") and not x.guard:
                continue
            new = set(self.step(*state)) - seen
            seen |= new
            waiting += new
        return None

    @functools.cached_property
    def unwaited(self) -> set[int]:
        """Offsets that a thread may reach before any wait at an mbarrier, or from an arrival of its own without one."""
        waiting = [(0, 0, frozenset(), frozenset(), "")]
        seen = set(waiting)
        while waiting:
            i, *state, asked = waiting.pop()
            x = self.code[i]
            named = PREDICATE.findall(x.operands)
            if WAIT.match(x.opcode):
                asked = named[0] if named and not x.guard else ""  # true once the phase is over
            elif ARRIVAL.match(x.opcode) or (asked in named and not x.steers):
                asked = ""
            for after in self.step(i, *state):
                new = (*after, WAITED if asked and (asked == WAITED or (asked, True) in after[2]) else asked)
                if new not in seen:
                    seen.add(new)
                    waiting.append(new)
        return {self.code[i].offset for i, *_, asked in seen if asked != WAITED}

    def beside_barrier(self, offset: int, step: int) -> bool:
        """Whether, on the straight way from an instruction down (1) or up (-1), the first barrier is the dispatch's."""
        i = self.at[offset]
        while 0 <= i + step < len(self.code):
            if max(i, i + step) in self.entered:
                return False
            i += step
            x = self.code[i]
            if x.opcode.startswith("BAR."):
                return x.barrier == DISPATCH_BARRIER and x.guard is None
            if x.steers or STRANGE.match(x.opcode):
                return False
        return False

    def may_be(self, write: int, read: int) -> bool:
        """Whether these offsets can be a write and a read of shared memory."""
        places = {"Write": self.at.get(write), "Read": self.at.get(read)}
        return all(i is not None and self.code[i].may(access) for access, i in places.items())

    def not_dispatch(self, write: int, read: int) -> str | None:
        """Why a store and a load are not the dispatch's, ordered by its barrier; None where they are."""
        store, load = self.code[self.at[write]], self.code[self.at[read]]
        if (store.opcode.split(".")[0], load.opcode.split(".")[0]) != ("STS", "LDS"):
            return f"{store.opcode} and {load.opcode}, not STS and LDS"
        byte = load.opcode.startswith("LDS.U8")  # else an argument
        try:
            if not self.beside_barrier(write, 1):
                return f"no barrier {DISPATCH_BARRIER} of all threads comes next after the store"
            if not self.beside_barrier(read, -1 if byte else 1):
                side = "last before" if byte else "next after"
                return f"no barrier {DISPATCH_BARRIER} of all threads comes {side} the load"
            meetings = self.meetings
        except Unclear as error:
            return f"the code is not understood: {error}"
        if (meetings[write], meetings[read]) != ({0}, {1}):
            return f"the store after {sorted(meetings[write])}, the load after {sorted(meetings[read])} meetings mod 3"
        return None

    def unordered(self, write: int, read: int) -> str | None:
        """Why they are neither the dispatch's nor a stage's; None where they are."""
        return self.not_handed_on(write, read) if self.fills(write) else self.not_dispatch(write, read)

    def fills(self, write: int) -> bool:
        """Whether this store is one of a pipeline's stages."""
        return self.code[self.at[write]].opcode.startswith("LDGSTS")

    def not_handed_on(self, write: int, read: int) -> str | None:
        """Why a store and a load are not those of a pipeline's stage, see above; None where they are."""
        store, load = self.code[self.at[write]], self.code[self.at[read]]
        if (store.opcode.split(".")[0], load.opcode.split(".")[0]) != ("LDGSTS", "LDS"):
            return f"{store.opcode} and {load.opcode}, not LDGSTS and LDS"
        try:
            arrival, unwaited = self.arrives_unmet(read), write in self.unwaited
        except Unclear as error:
            return f"the code is not understood: {error}"
        if arrival is not None:
            return f"no barrier of the warpgroup comes between the load and the arrival at {arrival:#x}"
        return "the store comes without a wait" if unwaited else None
