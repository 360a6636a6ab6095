//! Loads, stores and atomics, with bounds checks.

use crate::{
    block::Block,
    lanes::{LANES, Lanes, Outcome, members},
    memory::allocation_of,
    number::*,
    ptx::*,
    warp::Warp,
};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

impl Block<'_> {
    /// Translates an address to a pointer of this process; `bytes` bytes there must be aligned and
    /// lie within one allocation.
    pub fn aligned_pointer(
        &mut self,
        warp: &mut Warp,
        lane: usize,
        space: Space,
        address: u64,
        bytes: u64,
    ) -> Outcome<*mut u8> {
        if !address.is_multiple_of(bytes) {
            return Err(format!("address {address:#x} is not a multiple of {bytes}"));
        }
        self.unaligned_pointer(warp, lane, space, address, bytes)
    }

    /// As [`Block::aligned_pointer`], without the check for alignment.
    pub fn unaligned_pointer(
        &mut self,
        warp: &mut Warp,
        lane: usize,
        space: Space,
        address: u64,
        bytes: u64,
    ) -> Outcome<*mut u8> {
        let (space, address) = match space {
            Space::Generic if address >= PARAM => (Space::Param, address),
            Space::Generic if address >= LOCAL => (Space::Local, address - LOCAL),
            Space::Generic if address >= SHARED => (Space::Shared, address - SHARED),
            Space::Generic => (Space::Global, address),
            other => (other, address),
        };
        match space {
            Space::Shared => {
                if address + bytes > self.shared.len() as u64 {
                    return Err(format!("{address} and {bytes} more in {} bytes of shared memory", self.shared.len()));
                }
                Ok(unsafe { self.shared.as_mut_ptr().add(address as usize) })
            }
            Space::Local => {
                let size = self.launch.kernel.local as u64;
                if address + bytes > size {
                    return Err(format!("{address} and {bytes} more in {size} bytes of local memory"));
                }
                Ok(unsafe { warp.local.as_mut_ptr().add(lane * size as usize + address as usize) })
            }
            Space::Param => {
                let address = if address >= PARAM { address - PARAM } else { address };
                if address + bytes > self.launch.params.len() as u64 {
                    return Err(format!("{address} of {} bytes of parameters", self.launch.params.len()));
                }
                Ok(unsafe { self.launch.params.as_ptr().add(address as usize) as *mut u8 })
            }
            _ => {
                if address < self.cached.0 || address + bytes > self.cached.1 {
                    let of_module = || {
                        self.launch
                            .globals
                            .iter()
                            .map(|g| (g.as_ptr() as u64, g.as_ptr() as u64 + 8 * g.len() as u64))
                            .find(|(a, b)| address >= *a && address + bytes <= *b)
                    };
                    self.cached = allocation_of(&self.launch.ranges, address, bytes)
                        .or_else(of_module)
                        .ok_or_else(|| format!("address {address:#x} of {bytes} bytes is not allocated"))?;
                }
                Ok(address as *mut u8)
            }
        }
    }

    pub fn addresses(&self, warp: &Warp, at: &Address) -> Lanes<u64> {
        match at.base {
            Some(Reg::Double(r)) => warp.doubles[r as usize].map(|v| v.wrapping_add(at.offset as u64)),
            Some(Reg::Word(r)) => warp.words[r as usize].map(|v| v.wrapping_add(at.offset as u32) as u64),
            _ => [at.offset as u64; LANES],
        }
    }

    pub fn record_access(&mut self, warp: &Warp, lane: usize, space: Space, address: u64, bytes: u64, writes: bool) {
        let Some(races) = &mut self.races else { return };
        let address = match space {
            Space::Shared => address,
            Space::Generic if (SHARED..LOCAL).contains(&address) => address - SHARED,
            _ => return,
        };
        races.touch(warp.index, lane, address, bytes, writes);
    }

    pub fn load(&mut self, warp: &mut Warp, space: Space, ty: Ty, d: &[Reg], at: &Address, mask: u32) -> Outcome<()> {
        let addresses = self.addresses(warp, at);
        let each = ty.bytes();
        let bytes = (each * d.len()) as u64;
        if self.launch.profile {
            self.counts.touch(space, &addresses, bytes, mask);
        }
        let mut values = [[0u64; LANES]; 16];
        for lane in members(mask) {
            let from = self.aligned_pointer(warp, lane, space, addresses[lane], bytes)?;
            if self.races.is_some() {
                self.record_access(warp, lane, space, addresses[lane], bytes, false);
            }
            for (i, value) in values.iter_mut().take(d.len()).enumerate() {
                value[lane] = unsafe {
                    let from = from.add(i * each);
                    match ty {
                        Ty::S8 => *(from as *const i8) as i64 as u64,
                        Ty::S16 => *(from as *const i16) as i64 as u64,
                        Ty::S32 => *(from as *const i32) as i64 as u64,
                        _ => match each {
                            1 => *from as u64,
                            2 => *(from as *const u16) as u64,
                            4 => *(from as *const u32) as u64,
                            _ => *(from as *const u64),
                        },
                    }
                };
            }
        }
        for (i, d) in d.iter().enumerate() {
            match d {
                Reg::Double(_) => warp.set_double(*d, &values[i], mask),
                _ => warp.set_word(*d, &values[i].map(|v| v as u32), mask),
            }
        }
        Ok(())
    }

    pub fn store(
        &mut self,
        warp: &mut Warp,
        space: Space,
        ty: Ty,
        sources: &[Src],
        at: &Address,
        mask: u32,
    ) -> Outcome<()> {
        let addresses = self.addresses(warp, at);
        let each = ty.bytes();
        let bytes = (each * sources.len()) as u64;
        if self.launch.profile {
            self.counts.touch(space, &addresses, bytes, mask);
        }
        let values: Vec<Lanes<u64>> = sources.iter().map(|s| warp.double(*s, self)).collect();
        for lane in members(mask) {
            let to = self.aligned_pointer(warp, lane, space, addresses[lane], bytes)?;
            if self.races.is_some() {
                self.record_access(warp, lane, space, addresses[lane], bytes, true);
            }
            for (i, value) in values.iter().enumerate() {
                unsafe {
                    let to = to.add(i * each);
                    match each {
                        1 => *to = value[lane] as u8,
                        2 => *(to as *mut u16) = value[lane] as u16,
                        4 => *(to as *mut u32) = value[lane] as u32,
                        _ => *(to as *mut u64) = value[lane],
                    }
                }
            }
        }
        Ok(())
    }

    pub fn atomic(
        &mut self,
        warp: &mut Warp,
        op: (Atomic, Space, Ty),
        d: Reg,
        at: &Address,
        args: &[Src],
        mask: u32,
    ) -> Outcome<()> {
        let (f, space, ty) = op;
        let addresses = self.addresses(warp, at);
        let a = warp.double(args[0], self);
        let b = args.get(1).map(|s| warp.double(*s, self));
        let mut old = [0u64; LANES];
        self.counts.atomics += 1;
        for lane in members(mask) {
            let place = self.aligned_pointer(warp, lane, space, addresses[lane], ty.bytes() as u64)?;
            let change = |x: u64| -> u64 {
                let y = a[lane];
                match (f, ty) {
                    (Atomic::Add, Ty::F32) => (f32::from_bits(x as u32) + f32::from_bits(y as u32)).to_bits() as u64,
                    (Atomic::Add, Ty::F64) => (f64::from_bits(x) + f64::from_bits(y)).to_bits(),
                    (Atomic::Add, _) => x.wrapping_add(y),
                    (Atomic::And, _) => x & y,
                    (Atomic::Or, _) => x | y,
                    (Atomic::Xor, _) => x ^ y,
                    (Atomic::Exch, _) => y,
                    (Atomic::Cas, _) => {
                        if x == y {
                            b.unwrap()[lane]
                        } else {
                            x
                        }
                    }
                    (Atomic::Min, Ty::S32) => (x as i32).min(y as i32) as u32 as u64,
                    (Atomic::Max, Ty::S32) => (x as i32).max(y as i32) as u32 as u64,
                    (Atomic::Min, Ty::S64) => (x as i64).min(y as i64) as u64,
                    (Atomic::Max, Ty::S64) => (x as i64).max(y as i64) as u64,
                    (Atomic::Min, _) => x.min(y),
                    (Atomic::Max, _) => x.max(y),
                    (Atomic::Inc, _) => {
                        if x >= y {
                            0
                        } else {
                            x + 1
                        }
                    }
                    (Atomic::Dec, _) => {
                        if x == 0 || x > y {
                            y
                        } else {
                            x - 1
                        }
                    }
                }
            };
            old[lane] = unsafe {
                match ty.bytes() {
                    4 => (*(place as *const AtomicU32))
                        .fetch_update(SeqCst, SeqCst, |x| Some(change(x as u64) as u32))
                        .unwrap() as u64,
                    8 => (*(place as *const AtomicU64)).fetch_update(SeqCst, SeqCst, |x| Some(change(x))).unwrap(),
                    _ => return Err("an atomic of fewer than four bytes".into()),
                }
            };
        }
        warp.set(d, ty, &old, mask);
        Ok(())
    }

    /// Reads one matrix element from memory, for the matrix instructions.
    pub fn element(&mut self, warp: &mut Warp, lane: usize, space: Space, at: u64, ty: Ty) -> Outcome<f32> {
        let place = self.aligned_pointer(warp, lane, space, at, ty.bytes() as u64)?;
        self.record_access(warp, lane, space, at, ty.bytes() as u64, false);
        Ok(unsafe {
            match ty {
                Ty::BF16 => from_bf16(*(place as *const u16)),
                Ty::F16 => from_f16(*(place as *const u16)),
                _ => *(place as *const f32),
            }
        })
    }
}
