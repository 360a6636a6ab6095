//! Interprets a kernel: one block at a time, its warps in turn from barrier to barrier, a warp's
//! lanes in lockstep.

use crate::{
    block::{Block, Launch},
    comparison::compared,
    conversion::converted,
    lanes::{LANES, Lanes, Outcome, members},
    number::*,
    profile::Counts,
    ptx::*,
    races::Races,
    reconverge::NEVER,
    warp::{Path, Warp},
    warpgroup::check_warpgroups,
};
use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

enum Flow {
    Next,
    Jump(u32),
    /// A target per lane.
    Scatter(Lanes<u32>),
    Exit,
    Wait,
}

pub fn run(launch: &Launch) -> Outcome<Counts> {
    let blocks = launch.grid.0 as usize * launch.grid.1 as usize * launch.grid.2 as usize;
    // In a sample only `done` blocks run; the counts are extrapolated to all.
    let done = launch.sample.map_or(blocks, |sample| sample.clamp(1, blocks));
    let next = AtomicUsize::new(0);
    let failed: Mutex<Option<String>> = Mutex::new(None);
    let total = Mutex::new(Counts::default());
    let worker = || {
        let threads = launch.block.0 * launch.block.1 * launch.block.2;
        let warps = threads.div_ceil(LANES as u32);
        let kernel = launch.kernel;
        let mut block = Block {
            launch,
            at: (0, 0, 0),
            shared: vec![0; launch.shared],
            cached: (0, 0),
            races: launch.check_races.then(|| Races::new(launch.shared)),
            counts: Counts::default(),
        };
        let mut list: Vec<Warp> = (0..warps)
            .map(|index| Warp {
                index,
                paths: Vec::new(),
                alive: 0,
                words: vec![[0xffff_ffff; LANES]; kernel.words],
                doubles: vec![[u64::MAX; LANES]; kernel.doubles],
                preds: vec![0; kernel.preds],
                local: vec![0xff; kernel.local * LANES],
                copies: Default::default(),
                products: Default::default(),
                warpgroup_products: 0,
            })
            .collect();
        loop {
            let i = next.fetch_add(1, SeqCst);
            if i >= done || failed.lock().unwrap().is_some() {
                break;
            }
            let i = i * blocks / done;
            let (gx, gy) = (launch.grid.0 as usize, launch.grid.1 as usize);
            block.at = ((i % gx) as u32, (i / gx % gy) as u32, (i / gx / gy) as u32);
            if let Err(error) = block.run(&mut list, threads) {
                *failed.lock().unwrap() = Some(error);
                break;
            }
        }
        if let Some(races) = &mut block.races {
            block.counts.races = races.take();
        }
        total.lock().unwrap().add(block.counts);
    };
    if blocks < 4 {
        worker();
    } else {
        std::thread::scope(|scope| {
            let other = scope.spawn(worker);
            worker();
            if other.join().is_err() {
                *failed.lock().unwrap() = Some(format!("{}: a mistake of softcuda's, told above", launch.kernel.name));
            }
        });
    }
    match failed.into_inner().unwrap() {
        Some(error) => Err(error),
        None => Ok(total.into_inner().unwrap().scaled(blocks as u64, done as u64)),
    }
}

impl<'a> Block<'a> {
    fn run(&mut self, warps: &mut [Warp], threads: u32) -> Outcome<()> {
        for warp in warps.iter_mut() {
            let lanes = (threads - warp.index * LANES as u32).min(LANES as u32);
            warp.alive = if lanes == 32 { u32::MAX } else { (1 << lanes) - 1 };
            warp.paths = vec![Path { pc: 0, lanes: warp.alive, reconvergence: NEVER }];
            warp.copies.iter_mut().for_each(|copies| copies.clear());
            warp.products.clear();
        }
        // Shared memory is not initialized on a GPU: fill it with NaN, so that reading it shows.
        self.shared.fill(0xff);
        if let Some(races) = &mut self.races {
            races.block();
        }
        loop {
            for warp in warps.iter_mut() {
                self.warp(warp)?;
            }
            check_warpgroups(warps).map_err(|e| format!("{}: block {:?}: {e}", self.launch.kernel.name, self.at))?;
            if warps.iter().all(|w| w.alive == 0) {
                return Ok(());
            }
            let mut place = None;
            for warp in warps.iter().filter(|w| w.alive != 0) {
                let pc = warp.paths.last().map(|path| path.pc);
                if *place.get_or_insert(pc) != pc {
                    return Err(format!("{}: warps of a block wait at different barriers", self.launch.kernel.name));
                }
                self.counts.barriers += 1;
            }
            if let Some(races) = &mut self.races {
                races.barrier();
            }
        }
    }

    /// Runs a warp to the block's next barrier, or to its end.
    fn warp(&mut self, warp: &mut Warp) -> Outcome<()> {
        let kernel = self.launch.kernel;
        while let Some(path) = warp.paths.last_mut() {
            path.lanes &= warp.alive;
            if path.lanes == 0 || path.pc == path.reconvergence {
                warp.paths.pop();
                continue;
            }
            let Path { pc, lanes, reconvergence: outer } = *path;
            let instruction = &kernel.code[pc as usize];
            let active = match instruction.guard {
                Some((p, wanted)) => lanes & if wanted { warp.preds[p as usize] } else { !warp.preds[p as usize] },
                None => lanes,
            };
            self.counts.instructions += 1;
            path.pc = pc + 1;
            if active == 0 {
                continue;
            }
            self.counts.lanes += active.count_ones() as u64;
            let flow = self.step(warp, instruction, active).map_err(|e| {
                let lane = active.trailing_zeros() as usize;
                let thread = warp.tid(lane, self.launch.block);
                format!(
                    "{}: block {:?}, warp {}, thread {thread:?}: {}: {e}",
                    kernel.name, self.at, warp.index, instruction.text
                )
            })?;
            let targets = match flow {
                Flow::Next => continue,
                Flow::Jump(target) if active == lanes => {
                    warp.paths.last_mut().unwrap().pc = target;
                    continue;
                }
                Flow::Exit => {
                    warp.alive &= !active;
                    if warp.alive == 0 && !warp.products.is_empty() {
                        return Err(format!("{}: warp {} ends without waiting for its wgmma", kernel.name, warp.index));
                    }
                    continue;
                }
                Flow::Wait => {
                    if active != warp.alive {
                        let missing = warp.alive & !active;
                        return Err(format!(
                            "{}: warp {}: {}: lanes {missing:#x} are elsewhere",
                            kernel.name, warp.index, instruction.text
                        ));
                    }
                    return Ok(());
                }
                Flow::Jump(target) => [target; LANES],
                Flow::Scatter(targets) => targets,
            };
            self.counts.divergent += 1;
            let reconvergence = kernel.reconvergence[pc as usize];
            if reconvergence == outer || reconvergence == NEVER {
                warp.paths.pop();
            } else {
                warp.paths.last_mut().unwrap().pc = reconvergence;
            }
            let reconvergence = if reconvergence == NEVER { outer } else { reconvergence };
            if lanes != active {
                warp.paths.push(Path { pc: pc + 1, lanes: lanes & !active, reconvergence });
            }
            let mut rest = active;
            while rest != 0 {
                let target = targets[rest.trailing_zeros() as usize];
                let together =
                    members(rest).filter(|lane| targets[*lane] == target).fold(0, |mask, lane| mask | 1 << lane);
                warp.paths.push(Path { pc: target, lanes: together, reconvergence });
                rest &= !together;
            }
        }
        Ok(())
    }

    fn all_here(&self, warp: &Warp, members: Src, active: u32) -> Outcome<u32> {
        let masks = warp.word(members, self);
        let mask = masks[active.trailing_zeros() as usize];
        let missing = mask & !active;
        if missing != 0 {
            return Err(format!("lanes {missing:#x} of {mask:#x} are not here"));
        }
        Ok(mask)
    }

    fn step(&mut self, warp: &mut Warp, instruction: &Instruction, mask: u32) -> Outcome<Flow> {
        match &instruction.op {
            Op::Compute { f, ty, round, d, args, immediate } => {
                self.compute(warp, *f, *ty, *round, *d, args, *immediate, mask)?;
            }
            Op::Set { compare, ty, d, not_d, a, b, combine } => {
                let mut bits = compared(warp, self, *compare, *ty, *a, *b);
                let mut opposite = !bits;
                if let Some((c, with)) = combine {
                    let with = warp.bits(*with);
                    let join = |x: u32| match c {
                        Combine::And => x & with,
                        Combine::Or => x | with,
                        Combine::Xor => x ^ with,
                    };
                    bits = join(bits);
                    opposite = join(opposite);
                }
                warp.set_bits(*d, bits, mask);
                warp.set_bits(*not_d, opposite, mask);
            }
            Op::Convert { to, from, round, saturate, relu, d, args } => {
                let a = warp.double(args[0], self);
                let mut out = [0u64; LANES];
                match (to, args.get(1)) {
                    (Ty::BF16x2 | Ty::F16x2, Some(low)) => {
                        let low = warp.word(*low, self);
                        let narrow = |v: u32| {
                            let v = f32::from_bits(v);
                            let v = if *relu { v.max(0.0) } else { v };
                            (if *to == Ty::BF16x2 { to_bf16(v) } else { to_f16(v) }) as u64
                        };
                        for i in 0..LANES {
                            out[i] = narrow(a[i] as u32) << 16 | narrow(low[i]);
                        }
                    }
                    _ => {
                        for i in members(mask) {
                            out[i] = converted(*to, *from, *round, *saturate, a[i]);
                        }
                    }
                }
                match d {
                    Reg::Double(_) => warp.set_double(*d, &out, mask),
                    _ => warp.set_word(*d, &out.map(|v| v as u32), mask),
                }
            }
            Op::Unpack { parts, each, a } => {
                let v = warp.double(*a, self);
                let bits = 8 * *each as u32;
                for (i, part) in parts.iter().enumerate() {
                    let keep = if bits == 64 { u64::MAX } else { (1u64 << bits) - 1 };
                    warp.set_word(*part, &v.map(|v| (v >> (bits * i as u32) & keep) as u32), mask);
                }
            }
            Op::Pack { d, parts, each } => {
                let bits = 8 * *each as u32;
                let keep = if bits == 64 { u64::MAX } else { (1u64 << bits) - 1 };
                let mut out = [0u64; LANES];
                for (i, part) in parts.iter().enumerate() {
                    let v = warp.double(*part, self);
                    for lane in 0..LANES {
                        out[lane] |= (v[lane] & keep) << (bits * i as u32);
                    }
                }
                match d {
                    Reg::Double(_) => warp.set_double(*d, &out, mask),
                    _ => warp.set_word(*d, &out.map(|v| v as u32), mask),
                }
            }
            Op::Load { space, ty, d, at } => self.load(warp, *space, *ty, d, at, mask)?,
            Op::Store { space, ty, values, at } => self.store(warp, *space, *ty, values, at, mask)?,
            Op::Atom { f, space, ty, d, at, args } => self.atomic(warp, (*f, *space, *ty), *d, at, args, mask)?,
            Op::Branch { target } => return Ok(Flow::Jump(*target as u32)),
            Op::BranchTable { targets, index } => {
                let index = warp.word(*index, self);
                return Ok(Flow::Scatter(index.map(|i| *targets.get(i as usize).unwrap_or(&0) as u32)));
            }
            Op::Exit => return Ok(Flow::Exit),
            Op::Barrier => return Ok(Flow::Wait),
            Op::WarpBarrier => {
                if let Some(races) = &mut self.races {
                    races.warp_barrier(warp.index);
                }
            }
            Op::Nothing => {}
            Op::Trap => return Err("trap".into()),
            Op::Shuffle { mode, d, p, a, b, c, members: who } => {
                self.all_here(warp, *who, mask)?;
                let (a, b, c) = (warp.word(*a, self), warp.word(*b, self), warp.word(*c, self));
                let mut out = [0; LANES];
                let mut valid = 0u32;
                for lane in members(mask) {
                    let clamp = c[lane] & 31;
                    let segment = c[lane] >> 8 & 31;
                    let least = lane as u32 & segment;
                    let most = lane as u32 & segment | clamp & !segment;
                    let by = b[lane] & 31;
                    let (from, ok) = match mode {
                        Shuffle::Up => ((lane as u32).wrapping_sub(by), (lane as i64 - by as i64) >= most as i64),
                        Shuffle::Down => (lane as u32 + by, lane as u32 + by <= most),
                        Shuffle::Bfly => (lane as u32 ^ by, lane as u32 ^ by <= most),
                        Shuffle::Idx => (least | by & !segment, (least | by & !segment) <= most),
                    };
                    let from = if ok { from } else { lane as u32 };
                    if mask >> from & 1 == 0 {
                        return Err(format!("lane {lane} asks lane {from}, which is not here"));
                    }
                    out[lane] = a[from as usize];
                    valid |= (ok as u32) << lane;
                }
                if let Some(races) = &mut self.races {
                    races.warp_barrier(warp.index);
                }
                warp.set_word(*d, &out, mask);
                warp.set_bits(*p, valid, mask);
            }
            Op::Vote { mode, d, a, members: who } => {
                let who = self.all_here(warp, *who, mask)?;
                let bits = warp.bits(*a) & who;
                match mode {
                    Vote::Ballot => warp.set_word(*d, &[bits; LANES], mask),
                    Vote::All => warp.set_bits(*d, if bits == who { u32::MAX } else { 0 }, mask),
                    Vote::Any => warp.set_bits(*d, if bits != 0 { u32::MAX } else { 0 }, mask),
                    Vote::Uni => warp.set_bits(*d, if bits == 0 || bits == who { u32::MAX } else { 0 }, mask),
                }
            }
            Op::Redux { f, ty, d, a, members: who } => {
                let who = self.all_here(warp, *who, mask)?;
                let a = warp.word(*a, self);
                let reduced = members(who).map(|l| a[l]).reduce(|x, y| match (f, ty) {
                    (Atomic::Add, _) => x.wrapping_add(y),
                    (Atomic::Min, Ty::S32) => (x as i32).min(y as i32) as u32,
                    (Atomic::Max, Ty::S32) => (x as i32).max(y as i32) as u32,
                    (Atomic::Min, _) => x.min(y),
                    (Atomic::Max, _) => x.max(y),
                    (Atomic::And, _) => x & y,
                    (Atomic::Or, _) => x | y,
                    _ => x ^ y,
                });
                warp.set_word(*d, &[reduced.unwrap_or(0); LANES], mask);
            }
            Op::ActiveMask { d } => warp.set_word(*d, &[mask; LANES], mask),
            Op::FragmentLoad { .. }
            | Op::FragmentStore { .. }
            | Op::Multiply { .. }
            | Op::LoadMatrix { .. }
            | Op::StoreMatrix { .. } => {
                // The PTX manual requires all lanes, but burn's benchmark of tensor cores stores
                // with fewer.
                if mask != u32::MAX && !matches!(instruction.op, Op::FragmentStore { .. }) {
                    return Err(format!("lanes {:#x} of the warp are not here", !mask));
                }
                self.matrix(warp, &instruction.op, mask)?;
            }
            Op::CopyAsync { to, from, size, bytes } => self.copy_async(warp, to, from, *size, *bytes, mask)?,
            Op::CommitCopies => self.commit_copies(warp, mask),
            Op::AwaitCopies { most: Some(most) } => self.await_copies(warp, *most, mask),
            Op::AwaitCopies { most: None } => {
                self.commit_copies(warp, mask);
                self.await_copies(warp, 0, mask);
            }
            Op::ProxyFence => {
                if let Some(races) = &mut self.races {
                    members(mask).for_each(|lane| races.fence(warp.index, lane));
                }
            }
            Op::WarpgroupMultiply { .. } | Op::CommitProducts | Op::AwaitProducts { .. } if mask != u32::MAX => {
                return Err(format!("lanes {:#x} of the warp are not here", !mask));
            }
            Op::WarpgroupMultiply { columns, ty, sums, factors, accumulate } => {
                self.warpgroup_multiply(warp, *columns, *ty, sums, factors, *accumulate)?;
            }
            Op::CommitProducts => warp.products.commit(),
            Op::AwaitProducts { most } => self.await_products(warp, *most),
            Op::Unknown(name) => return Err(format!("{name} is not known")),
        }
        Ok(Flow::Next)
    }
}
