//! Parses one instruction: its guard, its operation and its operands.

use super::{Names, count, number};
use crate::ptx::*;

fn operands(text: &str) -> Vec<String> {
    let mut list = Vec::new();
    let mut depth = 0;
    let mut current = String::new();
    for c in text.chars() {
        match c {
            '{' | '[' | '(' => depth += 1,
            '}' | ']' | ')' => depth -= 1,
            ',' if depth == 0 => {
                list.push(current.trim().to_string());
                current.clear();
                continue;
            }
            _ => {}
        }
        current.push(c);
    }
    if !current.trim().is_empty() {
        list.push(current.trim().to_string());
    }
    list
}

impl Names<'_> {
    pub(super) fn instruction(&self, line: &str) -> Result<Instruction, String> {
        let mut text = line;
        let mut guard = None;
        if let Some(rest) = text.strip_prefix('@') {
            let (name, rest) = rest.split_once(char::is_whitespace).ok_or("guard")?;
            let (name, wanted) = match name.strip_prefix('!') {
                Some(name) => (name, false),
                None => (name, true),
            };
            match self.reg(name)? {
                Reg::Pred(p) => guard = Some((p, wanted)),
                _ => return Err("guard".into()),
            }
            text = rest.trim_start();
        }
        let end = text.find(char::is_whitespace).unwrap_or(text.len());
        let opcode = &text[..end];
        let args = operands(&text[end..].replace('\n', " "));
        let parts: Vec<&str> = opcode.split('.').collect();
        let op = self.op(&parts, &args)?;
        Ok(Instruction { guard, op, text: line.split_whitespace().collect::<Vec<_>>().join(" ") })
    }

    fn op(&self, parts: &[&str], args: &[String]) -> Result<Op, String> {
        use Arithmetic as A;
        let has = |word: &str| parts[1..].contains(&word);
        let types: Vec<Ty> = parts[1..].iter().filter_map(|p| Ty::named(p)).collect();
        let last = || types.last().copied().ok_or_else(|| "no type".to_string());
        let space = if has("param") {
            Space::Param
        } else if has("global") || has("const") {
            Space::Global
        } else if has("shared") || has("shared::cta") {
            Space::Shared
        } else if has("local") {
            Space::Local
        } else {
            Space::Generic
        };
        let round = parts[1..]
            .iter()
            .find_map(|p| {
                Some(match *p {
                    "rn" | "rni" => Round::Nearest,
                    "rz" | "rzi" => Round::Zero,
                    "rm" | "rmi" => Round::Down,
                    "rp" | "rpi" => Round::Up,
                    "rna" => Round::Away,
                    _ => return None,
                })
            })
            .unwrap_or(Round::None);
        let compute = |f: A| -> Result<Op, String> {
            let sources = args[1..].iter().map(|a| self.src(a)).collect::<Result<Vec<_>, _>>()?;
            Ok(Op::Compute { f, ty: last()?, round, d: self.reg(&args[0])?, args: sources, immediate: 0 })
        };
        let atomic = || {
            parts[1..].iter().find_map(|p| {
                Some(match *p {
                    "add" => Atomic::Add,
                    "min" => Atomic::Min,
                    "max" => Atomic::Max,
                    "and" => Atomic::And,
                    "or" => Atomic::Or,
                    "xor" => Atomic::Xor,
                    "exch" => Atomic::Exch,
                    "cas" => Atomic::Cas,
                    "inc" => Atomic::Inc,
                    "dec" => Atomic::Dec,
                    _ => return None,
                })
            })
        };
        Ok(match parts[0] {
            "mov" => {
                if args[0].starts_with('{') {
                    let regs = self.regs(&args[0])?;
                    let each = last()?.bytes() / regs.len();
                    Op::Unpack { parts: regs, each, a: self.src(&args[1])? }
                } else if args[1].starts_with('{') {
                    let values = self.srcs(&args[1])?;
                    let each = last()?.bytes() / values.len();
                    Op::Pack { d: self.reg(&args[0])?, parts: values, each }
                } else {
                    compute(A::Mov)?
                }
            }
            "add" => compute(A::Add)?,
            "sub" => compute(A::Sub)?,
            "mul" if has("wide") => compute(A::MulWide)?,
            "mul" if has("hi") => compute(A::MulHi)?,
            "mul" => compute(A::Mul)?,
            "mul24" => compute(A::Mul)?,
            "mad" if has("wide") => compute(A::MadWide)?,
            "mad" if has("hi") => compute(A::MadHi)?,
            "mad" => compute(A::Mad)?,
            "fma" if has("relu") => compute(A::FmaRelu)?,
            "fma" => compute(A::Fma)?,
            "div" => compute(A::Div)?,
            "rem" => compute(A::Rem)?,
            "min" if has("NaN") => compute(A::MinNan)?,
            "max" if has("NaN") => compute(A::MaxNan)?,
            "min" => compute(A::Min)?,
            "max" => compute(A::Max)?,
            "and" => compute(A::And)?,
            "or" => compute(A::Or)?,
            "xor" => compute(A::Xor)?,
            "not" => compute(A::Not)?,
            "cnot" => compute(A::Cnot)?,
            "neg" => compute(A::Neg)?,
            "abs" => compute(A::Abs)?,
            "shl" => compute(A::Shl)?,
            "shr" => compute(A::Shr)?,
            "copysign" => compute(A::CopySign)?,
            "sqrt" => compute(A::Sqrt)?,
            "rsqrt" => compute(A::Rsqrt)?,
            "rcp" => compute(A::Rcp)?,
            "ex2" => compute(A::Ex2)?,
            "lg2" => compute(A::Lg2)?,
            "sin" => compute(A::Sin)?,
            "cos" => compute(A::Cos)?,
            "tanh" => compute(A::Tanh)?,
            "popc" => compute(A::Popc)?,
            "clz" => compute(A::Clz)?,
            "brev" => compute(A::Brev)?,
            "bfind" => compute(A::Bfind)?,
            "bfe" => compute(A::Bfe)?,
            "bfi" => compute(A::Bfi)?,
            "prmt" => compute(A::Prmt)?,
            "selp" => compute(A::Selp)?,
            "shf" => match (has("l"), has("wrap")) {
                (true, true) => compute(A::ShfL)?,
                (false, true) => compute(A::ShfR)?,
                (true, false) => compute(A::ShfLClamp)?,
                (false, false) => compute(A::ShfRClamp)?,
            },
            "lop3" => {
                let immediate = number(&args[4]).ok_or("lop3")? as u8;
                let sources = args[1..4].iter().map(|a| self.src(a)).collect::<Result<Vec<_>, _>>()?;
                Op::Compute { f: A::Lop3, ty: Ty::U32, round, d: self.reg(&args[0])?, args: sources, immediate }
            }
            "cvta" => {
                let to = has("to");
                let window = match space {
                    Space::Shared => SHARED,
                    Space::Local => LOCAL,
                    Space::Param => 0,
                    _ => 0,
                };
                let f = if to { A::Sub } else { A::Add };
                Op::Compute {
                    f,
                    ty: Ty::U64,
                    round,
                    d: self.reg(&args[0])?,
                    args: vec![self.src(&args[1])?, Src::Imm(window)],
                    immediate: 0,
                }
            }
            "cvt" => {
                let sources = args[1..].iter().map(|a| self.src(a)).collect::<Result<Vec<_>, _>>()?;
                Op::Convert {
                    to: types[0],
                    from: types[1],
                    round,
                    saturate: has("sat"),
                    relu: has("relu"),
                    d: self.reg(&args[0])?,
                    args: sources,
                }
            }
            "setp" => {
                let compare = match parts[1] {
                    "eq" => Compare::Eq,
                    "ne" => Compare::Ne,
                    "lt" | "lo" => Compare::Lt,
                    "le" | "ls" => Compare::Le,
                    "gt" | "hi" => Compare::Gt,
                    "ge" | "hs" => Compare::Ge,
                    "equ" => Compare::Equ,
                    "neu" => Compare::Neu,
                    "ltu" => Compare::Ltu,
                    "leu" => Compare::Leu,
                    "gtu" => Compare::Gtu,
                    "geu" => Compare::Geu,
                    "num" => Compare::Num,
                    "nan" => Compare::Nan,
                    other => return Err(format!("setp.{other}")),
                };
                let combine = match parts[2] {
                    "and" => Some(Combine::And),
                    "or" => Some(Combine::Or),
                    "xor" => Some(Combine::Xor),
                    _ => None,
                };
                let (d, not_d) = match args[0].split_once('|') {
                    Some((d, n)) => (self.reg(d.trim())?, self.reg(n.trim())?),
                    None => (self.reg(&args[0])?, Reg::None),
                };
                let combine = match combine {
                    Some(c) => Some((c, self.src(&args[3])?)),
                    None => None,
                };
                Op::Set { compare, ty: last()?, d, not_d, a: self.src(&args[1])?, b: self.src(&args[2])?, combine }
            }
            "ld" | "ldu" => Op::Load { space, ty: last()?, d: self.regs(&args[0])?, at: self.address(&args[1])? },
            "st" => Op::Store { space, ty: last()?, values: self.srcs(&args[1])?, at: self.address(&args[0])? },
            "atom" => {
                let sources = args[2..].iter().map(|a| self.src(a)).collect::<Result<Vec<_>, _>>()?;
                Op::Atom {
                    f: atomic().ok_or("atom")?,
                    space,
                    ty: last()?,
                    d: self.reg(&args[0])?,
                    at: self.address(&args[1])?,
                    args: sources,
                }
            }
            "red" => {
                let sources = args[1..].iter().map(|a| self.src(a)).collect::<Result<Vec<_>, _>>()?;
                Op::Atom {
                    f: atomic().ok_or("red")?,
                    space,
                    ty: last()?,
                    d: Reg::None,
                    at: self.address(&args[0])?,
                    args: sources,
                }
            }
            "bra" => Op::Branch { target: self.label(&args[0])? },
            "brx" => {
                let table = self.tables.get(args[1].as_str()).ok_or("table")?;
                let targets = table.iter().map(|l| self.label(l)).collect::<Result<Vec<_>, _>>()?;
                Op::BranchTable { targets, index: self.src(&args[0])? }
            }
            "ret" | "exit" => Op::Exit,
            "trap" => Op::Trap,
            "bar" | "barrier" if has("warp") => Op::WarpBarrier,
            "bar" | "barrier" => Op::Barrier,
            "fence" if has("proxy") && has("async") && !has("global") => Op::ProxyFence,
            "membar" | "fence" | "prefetch" | "prefetchu" | "nanosleep" | "discard" => Op::Nothing,
            "activemask" => Op::ActiveMask { d: self.reg(&args[0])? },
            "shfl" => {
                let mode = match parts[2] {
                    "up" => Shuffle::Up,
                    "down" => Shuffle::Down,
                    "bfly" => Shuffle::Bfly,
                    "idx" => Shuffle::Idx,
                    other => return Err(format!("shfl {other}")),
                };
                let (d, p) = match args[0].split_once('|') {
                    Some((d, p)) => (self.reg(d.trim())?, self.reg(p.trim())?),
                    None => (self.reg(&args[0])?, Reg::None),
                };
                Op::Shuffle {
                    mode,
                    d,
                    p,
                    a: self.src(&args[1])?,
                    b: self.src(&args[2])?,
                    c: self.src(&args[3])?,
                    members: self.src(&args[4])?,
                }
            }
            "vote" => {
                let mode = match parts[2] {
                    "all" => Vote::All,
                    "any" => Vote::Any,
                    "uni" => Vote::Uni,
                    _ => Vote::Ballot,
                };
                Op::Vote { mode, d: self.reg(&args[0])?, a: self.src(&args[1])?, members: self.src(&args[2])? }
            }
            "redux" => Op::Redux {
                f: atomic().ok_or("redux")?,
                ty: last()?,
                d: self.reg(&args[0])?,
                a: self.src(&args[1])?,
                members: self.src(&args[2])?,
            },
            "cp" if parts[1] == "async" => self.copy_async(parts, args)?,
            "wgmma" => self.warpgroup(parts, args, &types)?,
            "wmma" | "mma" => self.matrix(parts, args, &types, space)?,
            "ldmatrix" => {
                Op::LoadMatrix { transposed: has("trans"), d: self.regs(&args[0])?, at: self.address(&args[1])?, space }
            }
            "stmatrix" => Op::StoreMatrix {
                transposed: has("trans"),
                values: self.srcs(&args[1])?,
                at: self.address(&args[0])?,
                space,
            },
            _ => Op::Unknown(parts.join(".")),
        })
    }

    fn copy_async(&self, parts: &[&str], args: &[String]) -> Result<Op, String> {
        Ok(match (parts[2], args) {
            ("commit_group", []) => Op::CommitCopies,
            ("wait_group", [most]) => Op::AwaitCopies { most: Some(count(most)?) },
            ("wait_all", []) => Op::AwaitCopies { most: None },
            ("ca" | "cg", [to, from, size, rest @ ..]) if !parts.contains(&"L2::cache_hint") => {
                let size = count(size)?;
                if !(size == 16 || parts[2] == "ca" && matches!(size, 4 | 8)) {
                    return Err(format!("cp.async of {size} bytes"));
                }
                let bytes = match rest {
                    [] => Src::Imm(size as u64),
                    [bytes] => self.src(bytes)?,
                    _ => return Err("cp.async with five operands".into()),
                };
                if matches!(bytes, Src::Reg(Reg::Pred(_)) | Src::NotPred(_)) {
                    return Err("cp.async with a predicate is not supported".into());
                }
                Op::CopyAsync { to: self.address(to)?, from: self.address(from)?, size, bytes }
            }
            _ => Op::Unknown(parts.join(".")),
        })
    }
}
