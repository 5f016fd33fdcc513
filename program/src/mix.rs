//! Instruction mixes: how many instructions of which kind, what they read and write, in numbers that can be
//! added up.
//!
//! Not here: what one instruction is (`arch`), and how often it ran.
//!
//! Source: T. Moseley, D. Grunwald, R. Peri, "Chainsaw: using binary matching for relative instruction mix
//! comparison" (2009), whose names these are where it has them.

use std::fmt;

macro_rules! metrics {
    ($($variant:ident $name:literal,)*) => {
        /// What is counted. Where it is a share or a mean of others, it is computed from them
        /// ([`Mix::derived`]).
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        #[expect(missing_docs, reason = "their names say what they are")]
        pub enum Metric { $($variant,)* }

        impl Metric {
            /// All of them, in order.
            pub const ALL: &[Metric] = &[$(Metric::$variant,)*];

            /// What it is called, without `dyn.` or `stat.`.
            pub const fn name(self) -> &'static str {
                match self { $(Metric::$variant => $name,)* }
            }
        }
    };
}

metrics! {
    Total "agg.total",
    Bytes "agg.bytes",
    MemReads "agg.mem_reads",
    MemReads1 "agg.mem_reads1",
    MemReads2 "agg.mem_reads2",
    MemReads4 "agg.mem_reads4",
    MemReads8 "agg.mem_reads8",
    MemReads16 "agg.mem_reads16",
    MemReads32 "agg.mem_reads32",
    MemReads64 "agg.mem_reads64",
    MemWrites "agg.mem_writes",
    MemWrites1 "agg.mem_writes1",
    MemWrites2 "agg.mem_writes2",
    MemWrites4 "agg.mem_writes4",
    MemWrites8 "agg.mem_writes8",
    MemWrites16 "agg.mem_writes16",
    MemWrites32 "agg.mem_writes32",
    MemWrites64 "agg.mem_writes64",
    StackReads "agg.stack_reads",
    StackWrites "agg.stack_writes",
    Jumps "agg.jmps",
    IndirectJumps "agg.indir_jmps",
    ConditionalBranches "agg.cond_br",
    Taken "agg.taken",
    Calls "agg.calls",
    DataTransfer "cat.DATAXFER",
    Binary "cat.BINARY",
    Logical "cat.LOGICAL",
    Shift "cat.SHIFT",
    Rotate "cat.ROTATE",
    BitByte "cat.BITBYTE",
    Div "cat.DIV",
    Convert "cat.CONVERT",
    Push "cat.PUSH",
    Pop "cat.POP",
    Cmov "cat.CMOV",
    Setcc "cat.SETCC",
    CondBr "cat.COND_BR",
    UncondBr "cat.UNCOND_BR",
    CallInsn "cat.CALL",
    Ret "cat.RET",
    StringOp "cat.STRING",
    Atomic "cat.ATOMIC",
    X87 "cat.X87_ALU",
    Mmx "cat.MMX",
    Shuffle "cat.SHUFFLE",
    Sse "cat.SSE",
    Avx "cat.AVX",
    Avx512 "cat.AVX512",
    Nop "cat.NOP",
    System "cat.SYSTEM",
    Misc "cat.MISC",
    ExtBase "ext.BASE",
    ExtX87 "ext.X87",
    ExtMmx "ext.MMX",
    ExtSse "ext.SSE",
    ExtSse2 "ext.SSE2",
    ExtSse3 "ext.SSE3",
    ExtSse4 "ext.SSE4",
    ExtAvx "ext.AVX",
    ExtAvx2 "ext.AVX2",
    ExtFma "ext.FMA",
    ExtAvx512 "ext.AVX512",
    ExtBmi "ext.BMI",
    ExtCrypto "ext.CRYPTO",
    ExtOther "ext.OTHER",
    Vectors "vec.total",
    VectorBytes "vec.bytes",
    Packed "vec.packed",
    Scalar "vec.scalar",
    SpillStores "spill.stores",
    SpillReloads "spill.reloads",
}

/// How many metrics there are.
const N: usize = Metric::ALL.len();

/// Names of what is computed from metrics.
const DERIVED: [&str; 2] = ["vec.width", "vec.packed_share"];

/// A sum of each metric.
#[derive(Clone, PartialEq, Eq)]
pub struct Mix([u64; N]);

impl Default for Mix {
    fn default() -> Mix {
        Mix([0; N])
    }
}

impl fmt::Debug for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(metric, n)| (metric.name(), n))).finish()
    }
}

impl Mix {
    /// How much there is of a metric.
    pub fn get(&self, metric: Metric) -> u64 {
        self.0[metric as usize]
    }

    /// Adds to a metric.
    pub fn add(&mut self, metric: Metric, n: u64) {
        let sum = &mut self.0[metric as usize];
        *sum = sum.saturating_add(n);
    }

    /// Adds all of `other`, so many times.
    pub fn add_times(&mut self, other: &Mix, times: u64) {
        for (sum, n) in self.0.iter_mut().zip(&other.0) {
            *sum = sum.saturating_add(n.saturating_mul(times));
        }
    }

    /// The metrics that are not 0, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Metric, u64)> + '_ {
        Metric::ALL.iter().zip(self.0).filter(|(_, n)| *n > 0).map(|(metric, n)| (*metric, n))
    }

    /// What is computed from metrics: mean bytes of vector instructions, share of packed ones of those that
    /// calculate; `None` if there are none, or `name` is not one of these.
    pub fn derived(&self, name: &str) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "a share for people")]
        let ratio = |a: u64, b: u64| (b > 0).then(|| a as f64 / b as f64);
        match DERIVED.iter().position(|one| *one == name)? {
            0 => ratio(self.get(Metric::VectorBytes), self.get(Metric::Vectors)),
            _ => {
                let packed = self.get(Metric::Packed);
                ratio(packed, packed.saturating_add(self.get(Metric::Scalar)))
            }
        }
    }

    /// A metric, or what is computed from some, by its name; `None` if there is none of that name, or it is
    /// not known.
    pub fn named(&self, name: &str) -> Option<f64> {
        let metric = Metric::ALL.iter().find(|metric| metric.name() == name);
        #[expect(clippy::cast_precision_loss, reason = "counts up to 2⁵³ are exact")]
        let n = metric.map(|metric| self.get(*metric) as f64);
        n.or_else(|| self.derived(name))
    }
}

/// Whether [`Mix::named`] knows a metric of this name.
pub fn is_metric(name: &str) -> bool {
    Metric::ALL.iter().any(|metric| metric.name() == name) || DERIVED.contains(&name)
}
