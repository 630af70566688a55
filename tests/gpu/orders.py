"""What is proven on machine code (sass.py): that barriers order two accesses which racecheck takes for a race.

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
both speak of the same stage's mbarrier, the source says alone. Of a partition of one warp the warp's own barrier stands
there, of which the compiler leaves a NOP where it knows the warp to be together: then the code goes straight on from
the load past that to the arrival, which each warp's first lane makes, after what its warp did before. That the register
whose last five bits say so holds the thread's number is shown; that the NOP is that barrier, the source says alone.

A message: a thread stores, and it, or its warp once that is together again (BSYNC), arrives at an mbarrier, and who
waited for it loads. What is shown for the way back is the same; for the way there, that a thread which has stored comes
to such an arrival or to a barrier of threads, and that the load, too, comes after a wait that succeeded. That only one
warp arrives together, the source says alone: of more the compiler has a barrier of threads before an arrival.

A bulk copy (UBLKCP) to a stage: a thread waits, arrives at the mbarrier that tells of the copy's bytes, and copies; who
waited for the bytes loads. The way back is that of a pipeline's stage, but for the arrival between wait and copy: from
one such arrival the thread comes to the next through a wait; how many copies it tells of, the source says alone. To
the load a thread has always waited once more than it has handed on since: so the stage that it reads has been waited
for, be it before an earlier one was handed on. That it is this stage, the source says alone.
"""

import functools
import re
from collections import defaultdict

from tests.gpu.sass import ARRIVAL, DISPATCH_BARRIER, PREDICATE, STRANGE, WAIT, Program, Unclear

WAITED, COPYING = "waited", "copying"
OWN = re.compile(r"SYNCS\.ARRIVE\.TRANS64(\.RED)?\.A1")  # one that counts; others tell of copies
FIRST_LANE = re.compile(r"(P\d), R(?:Z|\d+), R(\d+), 0x1f, RZ, 0xc0, !PT")  # of LOP3.LUT: false of a warp's first lane
BULK = "UBLKCP"
EVERY = re.compile(r"\bU?PR\b")  # predicate at once
WRITTEN = re.compile(r"(?:U?P\w, )?R(\d+)\b")  # the first register that is; behind two predicates one is read
# Which write one register, and others that write up to four.
ONE_WRITTEN = re.compile(
    r"(?!.*\.(?:64|WIDE))(IADD3|IMAD|LOP3|SHF|LEA|SEL|MOV|F(ADD|MUL|FMA|SEL|MNMX)|PRMT|VIADD|VIMNMX|IMNMX|IABS|S2R|SHFL)(\.|$)"
)
SIZES = re.compile(r"x\d")  # of the tensor cores', which stand before operands here: HGMMA.64, x64x16.F32 R24
ANY_REGISTER, MOST_REGISTERS = re.compile(r"\bR(\d+)\b"), 256


class Orders(Program):
    """A kernel, and what is proven on it."""

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
    def threads_known(self) -> dict[int, frozenset[str]]:
        """Before each instruction: registers that hold the thread's number, and predicates that all lanes but their
        warp's first have, whatever way led there."""
        after, found = defaultdict(set), {0: frozenset()}
        for state in self.states:
            after[state[0]] |= {j for j, *_ in self.step(*state)}
        waiting = [0]
        while waiting:
            i = waiting.pop()
            known = self.known_after(i, found[i])
            for j in after[i]:
                new = known & found[j] if j in found else known
                if found.get(j) != new:
                    found[j] = new
                    waiting.append(j)
        return found

    def known_after(self, i: int, known: frozenset[str]) -> frozenset[str]:
        """The same behind an instruction. What it may write is forgotten: one register where it writes no more, else
        four from its first on, of the tensor cores' all from there on; every predicate that it names."""
        x = self.code[i]
        if x.opcode.startswith("CALL") or "ENL2" in x.opcode:  # which writes two places
            return frozenset()
        named = {name for name in known if "P" in name} if EVERY.search(x.operands) else set()
        named |= {*PREDICATE.findall(x.operands)}
        many = bool(SIZES.match(x.operands))
        if written := (ANY_REGISTER.search if many else WRITTEN.match)(x.operands):
            first = int(written[1])
            count = 1 if ONE_WRITTEN.match(x.opcode) else 4
            named |= {f"R{n}" for n in range(first, MOST_REGISTERS if many else first + count)}
        lane = FIRST_LANE.fullmatch(x.operands) if x.opcode == "LOP3.LUT" and not x.guard else None
        made = {lane[1]} if lane and f"R{lane[2]}" in known else set()
        if x.opcode == "S2R" and not x.guard and x.operands.endswith(", SR_TID.X"):
            made = {x.operands.split(",")[0]}
        return frozenset((known - named) | made)

    def arrives_by_warp(self, read: int) -> bool:
        """Whether the code goes straight from a load past its warp's barrier to an arrival of the warp's first lane."""
        load, met = self.at[read], False
        for i in range(load, len(self.code)):
            x = self.code[i]
            if STRANGE.match(x.opcode) or (i == load and x.guard):
                return False
            if i > load and (i in self.entered or x.steers or x.barrier):
                return False
            if ARRIVAL.match(x.opcode):
                return bool(OWN.match(x.opcode)) and met and not x.wanted and x.guard in self.threads_known[i]
            met |= not x.guard and (x.opcode == "NOP" or (x.opcode, x.operands) == ("WARPSYNC", "0xffffffff"))
        return False

    @functools.cached_property
    def unwaited(self) -> set[int]:
        """Offsets that a thread may reach before any wait at an mbarrier, or from an arrival of its own without one."""
        return self.without_wait(lambda x, asked: "" if ARRIVAL.match(x.opcode) else asked)

    @functools.cached_property
    def unwaited_copies(self) -> set[int]:
        """The same of copies, which an arrival comes before that tells of them. Such an arrival uses up the wait: a
        second one needs another."""

        def after(x, asked: str) -> str:
            if not ARRIVAL.match(x.opcode):
                return asked
            return COPYING if asked == WAITED and not OWN.match(x.opcode) else ""

        return self.without_wait(after)

    def is_unwaited(self, offset: int) -> bool:
        """Whether a thread may come here with fewer waits at mbarriers behind it than arrivals of its own that count,
        and one: what it loads may have been waited for before an earlier stage was handed on. Of waits two are
        remembered."""
        waiting = [(0, 0, frozenset(), frozenset(), "", 0)]
        seen = set(waiting)
        while waiting:
            i, *state, asked, waits = waiting.pop()
            x = self.code[i]
            if x.offset == offset and waits == 0:
                return True
            named = PREDICATE.findall(x.operands)
            if WAIT.match(x.opcode):
                asked = named[0] if named and not x.guard else ""
            elif asked in named and not x.steers:
                asked = ""
            if OWN.match(x.opcode):
                waits = max(waits - 1, 0)
            for after in self.step(i, *state):
                over = bool(asked) and (asked, True) in after[2]
                new = (*after, "" if over else asked, min(waits + over, 2))
                if new not in seen:
                    seen.add(new)
                    waiting.append(new)
        return False

    def without_wait(self, after_it) -> set[int]:
        """Offsets that a thread may reach with no wait behind it that it remembers. What it remembers behind each
        instruction `after_it` says: WAITED, as long as that is so, or COPYING in its place."""
        waiting = [(0, 0, frozenset(), frozenset(), "")]
        seen = set(waiting)
        while waiting:
            i, *state, asked = waiting.pop()
            x = self.code[i]
            named = PREDICATE.findall(x.operands)
            if WAIT.match(x.opcode):
                asked = named[0] if named and not x.guard else ""  # true once the phase is over
            elif asked in named and not x.steers:
                asked = ""
            asked = after_it(x, asked)
            for after in self.step(i, *state):
                new = (*after, WAITED if asked and (asked == WAITED or (asked, True) in after[2]) else asked)
                if new not in seen:
                    seen.add(new)
                    waiting.append(new)
        return {self.code[i].offset for i, *_, asked in seen if asked not in (WAITED, COPYING)}

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
        """Why they are neither the dispatch's nor a stage's nor a message's; None where they are."""
        if self.fills(write):
            return self.not_handed_on(write, read)
        if self.code[self.at[write]].opcode.startswith(BULK):
            return self.not_copied(write, read)
        refusal = self.not_dispatch(write, read)
        other = refusal and self.not_told(write, read)
        return other and f"{refusal}; {other}"

    def fills(self, write: int) -> bool:
        """Whether this store is one of a pipeline's stages."""
        return self.code[self.at[write]].opcode.startswith("LDGSTS")

    def not_handed_on(self, write: int, read: int, kind: str = "LDGSTS") -> str | None:
        """Why a store, of this kind, and a load are not those of a pipeline's stage, see above; None where they are."""
        store, load = self.code[self.at[write]], self.code[self.at[read]]
        if (store.opcode.split(".")[0], load.opcode.split(".")[0]) != (kind, "LDS"):
            return f"{store.opcode} and {load.opcode}, not {kind} and LDS"
        try:
            arrival = None if self.arrives_by_warp(read) else self.arrives_unmet(read)
            unwaited = write in (self.unwaited_copies if kind == BULK else self.unwaited)
        except Unclear as error:
            return f"the code is not understood: {error}"
        if arrival is not None:
            return f"no barrier of the warpgroup comes between the load and the arrival at {arrival:#x}"
        return "the store comes without a wait" if unwaited else None

    def not_copied(self, write: int, read: int) -> str | None:
        """Why a bulk copy and a load are not those of a pipeline's stage; None where they are."""
        refusal = self.not_handed_on(write, read, BULK)
        return refusal or ("the load comes without a wait" if self.is_unwaited(read) else None)

    def not_told(self, write: int, read: int) -> str | None:
        """Why a store and a load are not those of a message; None where they are."""
        refusal = self.not_handed_on(write, read, "STS")
        if refusal:
            return refusal
        if read in self.unwaited:
            return "the load comes without a wait"
        return None if self.arrives_itself(write) else "who stores may arrive at no mbarrier after it"

    def arrives_itself(self, write: int) -> bool:
        """Whether each thread that stores here comes to an arrival of its own or, with its warp, to one of a lane, or
        to a barrier of threads."""
        waiting, seen = [], set()
        store = self.code[self.at[write]]
        for i, count, known, joins in self.states:
            if i == self.at[write] and (store.guard, not store.wanted) not in known:
                own = known | {(store.guard, store.wanted)} if store.guard else known
                waiting += [(*after, False) for after in self.step(i, count, own, joins)]
        while waiting:
            *state, together = waiting.pop()
            if (*state, together) in seen:
                continue
            seen.add((*state, together))
            x, known = self.code[state[0]], state[2]
            here = x.guard is None or (x.guard, x.wanted) in known
            arrives = OWN.match(x.opcode) and (x.guard, not x.wanted) not in known
            if (here and x.opcode.startswith("BAR.SYNC")) or (arrives and (here or together)):
                continue
            after = list(self.step(*state))
            if arrives or not after or (x.opcode == "EXIT" and (x.guard, not x.wanted) not in known):
                return False
            together = together or (x.opcode == "BSYNC" and here)
            waiting += [(*one, together) for one in after]
        return True
