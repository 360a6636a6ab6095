//! The PTX instructions that the kernels use.

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ty {
    U8,
    S8,
    U16,
    S16,
    U32,
    S32,
    U64,
    S64,
    F16,
    BF16,
    F16x2,
    BF16x2,
    F32,
    F64,
    Tf32,
    Pred,
}

impl Ty {
    pub fn named(name: &str) -> Option<Ty> {
        Some(match name {
            "u8" | "b8" => Ty::U8,
            "s8" => Ty::S8,
            "u16" | "b16" => Ty::U16,
            "s16" => Ty::S16,
            "u32" | "b32" => Ty::U32,
            "s32" => Ty::S32,
            "u64" | "b64" => Ty::U64,
            "s64" => Ty::S64,
            "f16" => Ty::F16,
            "bf16" => Ty::BF16,
            "f16x2" => Ty::F16x2,
            "bf16x2" => Ty::BF16x2,
            "f32" => Ty::F32,
            "f64" => Ty::F64,
            "tf32" => Ty::Tf32,
            "pred" => Ty::Pred,
            _ => return None,
        })
    }

    pub fn bytes(self) -> usize {
        match self {
            Ty::U8 | Ty::S8 | Ty::Pred => 1,
            Ty::U16 | Ty::S16 | Ty::F16 | Ty::BF16 => 2,
            Ty::U64 | Ty::S64 | Ty::F64 => 8,
            _ => 4,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reg {
    /// A register of 8, 16 or 32 bits.
    Word(u32),
    /// A register of 64 bits.
    Double(u32),
    Pred(u32),
    /// `_`: the result is discarded.
    None,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Special {
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    LaneId,
    WarpId,
    LaneMaskLt,
    LaneMaskLe,
    LaneMaskGt,
    LaneMaskGe,
    LaneMaskEq,
    Clock,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Src {
    Reg(Reg),
    Imm(u64),
    Special(Special),
    NotPred(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    Param,
    Global,
    Shared,
    Local,
    Generic,
}

#[derive(Clone, Copy, Debug)]
pub struct Address {
    pub base: Option<Reg>,
    pub offset: i64,
}

/// Start of the address windows for memory other than global: above all addresses of this process.
pub const SHARED: u64 = 1 << 60;
pub const LOCAL: u64 = 2 << 60;
pub const PARAM: u64 = 3 << 60;

pub struct Instruction {
    /// A predicate register, and the value at which the instruction executes.
    pub guard: Option<(u32, bool)>,
    pub op: Op,
    /// The source text, for messages.
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    Add,
    Sub,
    Mul,
    MulHi,
    MulWide,
    Div,
    Rem,
    Min,
    Max,
    MinNan,
    MaxNan,
    And,
    Or,
    Xor,
    Shl,
    Shr,
    CopySign,
    Neg,
    Abs,
    Not,
    Cnot,
    Sqrt,
    Rsqrt,
    Rcp,
    Ex2,
    Lg2,
    Sin,
    Cos,
    Tanh,
    Popc,
    Clz,
    Brev,
    Bfind,
    Mad,
    MadWide,
    MadHi,
    Fma,
    FmaRelu,
    Selp,
    Bfe,
    Bfi,
    Prmt,
    ShfL,
    ShfR,
    ShfLClamp,
    ShfRClamp,
    Mov,
    Lop3,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Equ,
    Neu,
    Ltu,
    Leu,
    Gtu,
    Geu,
    Num,
    Nan,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combine {
    And,
    Or,
    Xor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    None,
    Nearest,
    Zero,
    Down,
    Up,
    Away,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shuffle {
    Up,
    Down,
    Bfly,
    Idx,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vote {
    All,
    Any,
    Uni,
    Ballot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomic {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
    Exch,
    Cas,
    Inc,
    Dec,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    A,
    B,
    C,
}

/// A factor of a `wgmma`.
#[derive(Clone, Copy, Debug)]
pub struct Operand {
    pub place: Place,
    pub negative: bool,
}

#[derive(Clone, Copy, Debug)]
pub enum Place {
    Shared {
        descriptor: Src,
        transposed: bool,
    },
    /// Two elements per register, the first in the lower half.
    Registers([Src; 4]),
}

#[derive(Clone, Debug)]
pub enum Op {
    Compute {
        f: Arithmetic,
        ty: Ty,
        round: Round,
        d: Reg,
        args: Vec<Src>,
        immediate: u8,
    },
    Set {
        compare: Compare,
        ty: Ty,
        d: Reg,
        not_d: Reg,
        a: Src,
        b: Src,
        combine: Option<(Combine, Src)>,
    },
    Convert {
        to: Ty,
        from: Ty,
        round: Round,
        saturate: bool,
        relu: bool,
        d: Reg,
        args: Vec<Src>,
    },
    /// `mov.b64 {a, b}, c`
    Unpack {
        parts: Vec<Reg>,
        each: usize,
        a: Src,
    },
    Pack {
        d: Reg,
        parts: Vec<Src>,
        each: usize,
    },
    Load {
        space: Space,
        ty: Ty,
        d: Vec<Reg>,
        at: Address,
    },
    Store {
        space: Space,
        ty: Ty,
        values: Vec<Src>,
        at: Address,
    },
    Atom {
        f: Atomic,
        space: Space,
        ty: Ty,
        d: Reg,
        at: Address,
        args: Vec<Src>,
    },
    Branch {
        target: usize,
    },
    BranchTable {
        targets: Vec<usize>,
        index: Src,
    },
    Exit,
    Barrier,
    WarpBarrier,
    Nothing,
    Trap,
    Shuffle {
        mode: Shuffle,
        d: Reg,
        p: Reg,
        a: Src,
        b: Src,
        c: Src,
        members: Src,
    },
    Vote {
        mode: Vote,
        d: Reg,
        a: Src,
        members: Src,
    },
    Redux {
        f: Atomic,
        ty: Ty,
        d: Reg,
        a: Src,
        members: Src,
    },
    ActiveMask {
        d: Reg,
    },
    FragmentLoad {
        part: Part,
        row: bool,
        shape: (usize, usize, usize),
        ty: Ty,
        space: Space,
        d: Vec<Reg>,
        at: Address,
        stride: Src,
    },
    FragmentStore {
        row: bool,
        shape: (usize, usize, usize),
        ty: Ty,
        space: Space,
        values: Vec<Src>,
        at: Address,
        stride: Src,
    },
    /// `wmma.mma` (the layout of its factors in memory no longer matters) and `mma.sync`.
    Multiply {
        shape: (usize, usize, usize),
        types: [Ty; 4],
        d: Vec<Reg>,
        a: Vec<Src>,
        b: Vec<Src>,
        c: Vec<Src>,
    },
    LoadMatrix {
        transposed: bool,
        d: Vec<Reg>,
        at: Address,
        space: Space,
    },
    StoreMatrix {
        transposed: bool,
        values: Vec<Src>,
        at: Address,
        space: Space,
    },
    /// `cp.async`
    CopyAsync {
        to: Address,
        from: Address,
        size: usize,
        bytes: Src,
    },
    CommitCopies,
    /// Waits until at most this number of groups is pending; None waits for everything.
    AwaitCopies {
        most: Option<usize>,
    },
    /// `fence.proxy.async`, for shared memory
    ProxyFence,
    /// `wgmma.mma_async`
    WarpgroupMultiply {
        columns: usize,
        ty: Ty,
        sums: Vec<Reg>,
        factors: [Operand; 2],
        accumulate: Src,
    },
    CommitProducts,
    AwaitProducts {
        most: usize,
    },
    Unknown(String),
}

pub struct Kernel {
    pub name: String,
    /// Offset and size of each parameter in the parameter block.
    pub params: Vec<(usize, usize)>,
    pub code: Vec<Instruction>,
    /// For each branch, the instruction where its paths reconverge.
    pub reconvergence: Vec<u32>,
    pub words: usize,
    pub doubles: usize,
    pub preds: usize,
    pub shared: usize,
    pub local: usize,
    pub threads: Option<(u32, u32, u32)>,
}

pub struct Module {
    pub kernels: Vec<Kernel>,
    /// Memory of the global variables, which lives as long as the module.
    pub globals: Vec<Box<[u64]>>,
}
