//! A warp: its registers, and the stack of its diverged paths.

use crate::{
    block::Block,
    copy::AsyncCopy,
    lanes::{LANES, Lanes},
    pending::Pending,
    ptx::*,
    warpgroup::Reads,
};

/// A path that some lanes of a diverged warp are on: an entry of the reconvergence stack.
pub struct Path {
    pub pc: u32,
    /// Mask of the lanes on this path.
    pub lanes: u32,
    /// The instruction where the path ends and reconverges with the others.
    pub reconvergence: u32,
}

pub struct Warp {
    pub index: u32,
    /// Reconvergence stack: the last path runs, the others wait for it.
    pub paths: Vec<Path>,
    /// Mask of the lanes that have not exited.
    pub alive: u32,
    pub words: Vec<Lanes<u32>>,
    pub doubles: Vec<Lanes<u64>>,
    pub preds: Vec<u32>,
    pub local: Vec<u8>,
    /// Asynchronous copies of each thread.
    pub copies: Lanes<Pending<AsyncCopy>>,
    pub products: Pending<Reads>,
    /// Number of `wgmma` instructions executed.
    pub warpgroup_products: u64,
}

impl Warp {
    pub fn tid(&self, lane: usize, block: (u32, u32, u32)) -> (u32, u32, u32) {
        let i = self.index * LANES as u32 + lane as u32;
        (i % block.0, i / block.0 % block.1, i / block.0 / block.1)
    }

    pub fn special(&self, s: Special, block: &Block) -> Lanes<u32> {
        let dim = block.launch.block;
        let axis = |t: (u32, u32, u32), a: u8| [t.0, t.1, t.2][a as usize];
        std::array::from_fn(|lane| match s {
            Special::Tid(a) => axis(self.tid(lane, dim), a),
            Special::Ntid(a) => axis(dim, a),
            Special::Ctaid(a) => axis(block.at, a),
            Special::Nctaid(a) => axis(block.launch.grid, a),
            Special::LaneId => lane as u32,
            Special::WarpId => self.index,
            Special::LaneMaskEq => 1 << lane,
            Special::LaneMaskLt => (1u32 << lane) - 1,
            Special::LaneMaskLe => ((1u32 << lane) - 1) | (1 << lane),
            Special::LaneMaskGt => !(((1u32 << lane) - 1) | (1 << lane)),
            Special::LaneMaskGe => !((1u32 << lane) - 1),
            Special::Clock => 0,
        })
    }

    pub fn word(&self, s: Src, block: &Block) -> Lanes<u32> {
        match s {
            Src::Reg(Reg::Word(r)) => self.words[r as usize],
            Src::Reg(Reg::Double(r)) => self.doubles[r as usize].map(|v| v as u32),
            Src::Reg(Reg::Pred(p)) => std::array::from_fn(|i| self.preds[p as usize] >> i & 1),
            Src::NotPred(p) => std::array::from_fn(|i| !self.preds[p as usize] >> i & 1),
            Src::Imm(v) => [v as u32; LANES],
            Src::Special(s) => self.special(s, block),
            Src::Reg(Reg::None) => [0; LANES],
        }
    }

    pub fn double(&self, s: Src, block: &Block) -> Lanes<u64> {
        match s {
            Src::Reg(Reg::Double(r)) => self.doubles[r as usize],
            Src::Imm(v) => [v; LANES],
            other => self.word(other, block).map(|v| v as u64),
        }
    }

    pub fn bits(&self, s: Src) -> u32 {
        match s {
            Src::Reg(Reg::Pred(p)) => self.preds[p as usize],
            Src::NotPred(p) => !self.preds[p as usize],
            Src::Imm(v) if v & 1 == 1 => u32::MAX,
            _ => 0,
        }
    }

    pub fn set_word(&mut self, d: Reg, v: &Lanes<u32>, mask: u32) {
        match d {
            Reg::Word(r) => {
                let to = &mut self.words[r as usize];
                if mask == u32::MAX {
                    *to = *v;
                } else {
                    for i in 0..LANES {
                        to[i] = if mask >> i & 1 == 1 { v[i] } else { to[i] };
                    }
                }
            }
            Reg::Double(_) => self.set_double(d, &v.map(|v| v as u64), mask),
            Reg::Pred(_) => {
                let bits = (0..LANES).fold(0, |bits, i| bits | (v[i] & 1) << i);
                self.set_bits(d, bits, mask)
            }
            Reg::None => {}
        }
    }

    pub fn set_double(&mut self, d: Reg, v: &Lanes<u64>, mask: u32) {
        match d {
            Reg::Double(r) => {
                let to = &mut self.doubles[r as usize];
                for i in 0..LANES {
                    to[i] = if mask >> i & 1 == 1 { v[i] } else { to[i] };
                }
            }
            Reg::None => {}
            _ => self.set_word(d, &v.map(|v| v as u32), mask),
        }
    }

    pub fn set_bits(&mut self, d: Reg, bits: u32, mask: u32) {
        match d {
            Reg::Pred(p) => {
                let to = &mut self.preds[p as usize];
                *to = *to & !mask | bits & mask;
            }
            Reg::None => {}
            _ => self.set_word(d, &std::array::from_fn(|i| bits >> i & 1), mask),
        }
    }

    pub fn set(&mut self, d: Reg, ty: Ty, v: &Lanes<u64>, mask: u32) {
        if ty.bytes() == 8 { self.set_double(d, v, mask) } else { self.set_word(d, &v.map(|v| v as u32), mask) }
    }
}
