//! What is put where: points of a program, and what happens there.
//!
//! A point is one place or several, each before an instruction, behind it, or on an edge. An edge gets code
//! of its own: a branch that is taken leads around it, entries of a jump table and call sites of an exception
//! table lead to it.
//!
//! Invariant: a probe sees every passing of its point, and nothing else; what cannot be had so is an error,
//! not a guess.
//!
//! Source: points as in MAQAO's MIL (VPROF, section 2.1); edges by code of their own: Meng and Miller,
//! "Binary Code Is Not Easy", ISSTA 2016, section 5.
#![warn(clippy::indexing_slicing)]

use crate::arch::snippet::{Field, HISTOGRAM_WORDS, NoValue, Sink, Value};
use crate::arch::vectorise::NotVectorised;
use crate::not_moved::NotMoved;
use program::arch::RegSet;
use program::{BlockId, EdgeId, FuncId, Va};

/// A place in a program, or several that belong together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Point {
    /// A function is entered at its entry, by whoever calls it or jumps to it from outside.
    Entry(FuncId),
    /// A function is left: by a return, or by a jump out of it. Not by an exception, or by a call that never
    /// returns.
    Exit(FuncId),
    /// Whoever called a function gets control back, with its result: before each return; behind each jump out
    /// of it, which is made a call for that.
    Return {
        /// The function.
        func: FuncId,
        /// Whether it has arguments in memory: what it jumps to would look for its own where they are not, so
        /// jumps stay, and it is not seen that they come back.
        has_arguments_in_memory: bool,
    },
    /// A block is entered.
    Block(BlockId),
    /// Control goes along an edge.
    Edge(EdgeId),
    /// Before an instruction; a call, too.
    Before(Va),
    /// Behind an instruction that does not branch; a call, too: when it has returned.
    After(Va),
    /// The loop with this header is entered from outside.
    LoopEntry(BlockId),
    /// Control goes back to the header of the loop.
    BackEdge(BlockId),
    /// The loop is left along an edge.
    LoopExit(BlockId),
}

/// What happens at a point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// A counter is incremented.
    Count,
    /// A word of the page that a thread's stream of events starts with is incremented: one of
    /// [`crate::arch::shared::N_EVENT_WORDS`], which all modules share.
    CountInStream(u32),
    /// So much is added to such a word.
    AddInStream(u32, u32),
    /// A value goes into the thread's own memory.
    Keep(Value, Sink),
    /// A record is appended to the thread's stream of events.
    Append(Record),
    /// A routine is called with a value: position-independent code that keeps to the ABI, touches no vector
    /// register, and has so many words of the thread's own memory.
    Call(Value, Routine),
    /// At [`Point::LoopEntry`]: most iterations of the loop are run by wider instructions, of AVX2; nothing
    /// else is to stand there, and threads have no memory of their own for it.
    Vectorise,
}

/// What is appended: a word, and behind it values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// By which it is known; not 0.
    pub word: u32,
    /// Behind it.
    pub fields: Vec<Field>,
    /// At [`Point::Return`]: what is appended, with the low half of the stack pointer, where a jump out of
    /// the function stays a jump. Where nothing is, such a jump is an error.
    pub passes: Option<u32>,
}

/// Code that is called at a point. Unwinders do not see through it: nothing may be
/// thrown out of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Routine {
    /// The code, which starts with its first instruction.
    pub code: Vec<u8>,
    /// Words that it needs. The address of the first is in rsi, to be used with `gs`; the value is in rdi.
    pub words: u32,
}

/// A point and what happens there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Probe {
    /// Where.
    pub point: Point,
    /// What.
    pub action: Action,
}

/// Which executions are counted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Counting {
    /// None.
    #[default]
    Nothing,
    /// A counter a block.
    Blocks,
    /// By function: these blocks and edges, from whose counts the others follow; every block of a function
    /// that has none.
    Sparse(Vec<Option<Sparse>>),
}

/// What is counted of a function, if what it leads to is all that its program says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sparse {
    /// Blocks, ascending.
    pub blocks: Vec<BlockId>,
    /// Edges, ascending: but those of jump tables and to landing pads.
    pub edges: Vec<EdgeId>,
    /// Blocks that control may come to from outside, besides the function's entries.
    pub open: Vec<BlockId>,
}

/// What is to be put into the moved code.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// What is counted.
    pub counting: Counting,
    /// Direct calls that are counted by themselves, ascending, if what they call stays and control comes to
    /// them less often than to their blocks.
    pub calls: Vec<CountedCall>,
    /// What else.
    pub probes: Vec<Probe>,
    /// Whether it is counted where indirect calls lead.
    pub indirect_calls: bool,
    /// What is appended to the thread's stream of events; nothing else keeps anything then.
    pub events: Vec<Event>,
    /// Direct calls, by address, that come as from inside of the function that they call: past what is put
    /// there for who comes from outside.
    pub from_inside: Vec<Va>,
    /// Whether the module must run, uncounted, on kernels before Linux 5.9, too: these refuse the instruction
    /// that tells threads apart whatever memory they have, and it is done by the word that their thread
    /// pointer leads to.
    pub old_kernels: bool,
    /// Functions that others stand in for. If there are any, these alone are moved: for calls of them that
    /// are in progress, and for whoever stands in.
    pub replaced: Vec<Replaced>,
    /// Functions that are moved alone, if there are any, with those that are replaced.
    pub alone: Vec<FuncId>,
    /// Calls that lead elsewhere. If there are any, no functions are moved but those that are replaced.
    pub led: Vec<Led>,
}

/// A function that another stands in for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replaced {
    /// The function: whoever comes to its entry from outside, or calls it from its own code,
    pub func: FuncId,
    /// gets here.
    pub to: Va,
    /// What is kept through that: what callers may know that the function leaves alone, and what stands in
    /// for it does not (`-fipa-ra` of gcc).
    pub keeps: RegSet,
}

/// A call that leads elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Led {
    /// The call: a direct one, or one through a slot that it names by its distance.
    pub at: Va,
    /// Where it leads.
    pub to: Va,
}

/// A direct call that is counted by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CountedCall {
    /// The call.
    pub at: Va,
    /// Whether its count follows where all ways out of its block are counted.
    pub follows: bool,
}

/// Where an event is appended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventAt {
    /// In front of the block, for who comes from outside of the function.
    Entry,
    /// At its start.
    Start,
    /// Behind this call of it.
    Behind(Va),
    /// Where its last instruction branches to, if it does.
    Taken,
    /// At its end, if control runs on.
    Through,
}

/// What is appended, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// The block, of a function that is moved.
    pub block: BlockId,
    /// Where there.
    pub at: EventAt,
    /// What.
    pub word: u32,
    /// Whether the low half of the stack pointer comes behind it.
    pub has_frame: bool,
}

impl Plan {
    /// Nothing: code is moved, no more.
    pub const NULL: Plan = Plan {
        counting: Counting::Nothing,
        calls: Vec::new(),
        probes: Vec::new(),
        indirect_calls: false,
        events: Vec::new(),
        from_inside: Vec::new(),
        old_kernels: false,
        replaced: Vec::new(),
        alone: Vec::new(),
        led: Vec::new(),
    };
    /// A counter a block.
    pub const BLOCKS: Plan = Plan {
        counting: Counting::Blocks,
        calls: Vec::new(),
        probes: Vec::new(),
        indirect_calls: false,
        events: Vec::new(),
        from_inside: Vec::new(),
        old_kernels: false,
        replaced: Vec::new(),
        alone: Vec::new(),
        led: Vec::new(),
    };

    /// Whether something is appended to the thread's stream of events.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
            || self.probes.iter().any(|probe| {
                matches!(probe.action, Action::Append(_) | Action::CountInStream(_) | Action::AddInStream(..))
            })
    }

    /// Whether code is moved, no more: nothing is kept of what it does.
    pub fn is_null(&self) -> bool {
        self.counting == Counting::Nothing
            && self.probes.iter().all(|probe| probe.action == Action::Vectorise)
            && !self.indirect_calls
            && self.events.is_empty()
            && self.from_inside.is_empty()
    }
}

impl Action {
    /// Words of the thread's own memory.
    pub fn words(&self) -> u32 {
        match self {
            Action::Count | Action::Keep(_, Sink::Last) => 1,
            Action::Keep(_, Sink::Ring(len)) => 1 + len,
            Action::Keep(_, Sink::Histogram) => HISTOGRAM_WORDS,
            Action::Keep(_, Sink::Call) | Action::Append(_) => 0,
            Action::CountInStream(_) | Action::AddInStream(..) | Action::Vectorise => 0,
            Action::Call(_, routine) => routine.words,
        }
    }
}

/// Why a probe cannot be put where it is wanted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Its function is not moved.
    #[error("{function} stays where it is: {why}")]
    NotMoved {
        /// The function.
        function: String,
        /// Why.
        why: NotMoved,
    },
    /// There is no instruction there.
    #[error("no instruction of a function starts at {0}")]
    NoInstruction(Va),
    /// Behind a branch there is no one place.
    #[error("the instruction at {0} does not run on to the next: ask for its edges")]
    Branches(Va),
    /// No loop has this header.
    #[error("no loop has its header at {0}")]
    NoLoop(Va),
    /// Several jumps read one table.
    #[error(
        "the edges of the jump at {jump} cannot be told apart: its table at {table} is read by other jumps, too"
    )]
    SharedTable {
        /// The jump.
        jump: Va,
        /// The table.
        table: Va,
    },
    /// The value cannot be had.
    #[error("at {at}: {why}")]
    Value {
        /// Where.
        at: Va,
        /// Why.
        why: NoValue,
    },
    /// The loop cannot be vectorised.
    #[error("the loop at {at} cannot be vectorised: {why}")]
    NotVectorised {
        /// Its header.
        at: Va,
        /// Why.
        why: NotVectorised,
    },
    /// A ring has a length that is no power of two, or is too long.
    #[error("a ring has 1 to 65536 words, a power of two; not {0}")]
    Ring(u32),
}
