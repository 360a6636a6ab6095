//! The warp-level matrix instructions: the layout of fragments in registers, and the product.

use crate::{
    block::Block,
    lanes::{LANES, Lanes, Outcome, members},
    number::*,
    ptx::*,
    warp::Warp,
};

pub fn per_register(ty: Ty) -> usize {
    if ty.bytes() == 2 { 2 } else { 1 }
}

pub fn encoded(ty: Ty, v: f32) -> u64 {
    match ty {
        Ty::BF16 => to_bf16(v) as u64,
        Ty::F16 => to_f16(v) as u64,
        _ => v.to_bits() as u64,
    }
}

pub fn decoded(ty: Ty, word: u32, half: usize) -> f32 {
    match ty {
        Ty::BF16 => from_bf16((word >> (16 * half)) as u16),
        Ty::F16 => from_f16((word >> (16 * half)) as u16),
        Ty::Tf32 => f32::from_bits(word & !0x1fff),
        _ => f32::from_bits(word),
    }
}

/// Row and column of an element of a `wmma` fragment. The PTX manual leaves the layout open; here
/// it is that of `mma.sync`: tiles of 8 rows (of B: columns), with four lanes per row of a tile.
/// float16 elements are held twice, in twice as many registers.
pub fn position(
    part: Part,
    shape: (usize, usize, usize),
    ty: Ty,
    lane: usize,
    reg: usize,
    half: usize,
) -> (usize, usize) {
    let (m, n, k) = shape;
    let (group, within) = (lane / 4, lane % 4);
    let per = per_register(ty);
    let width = 4 * per;
    match part {
        // Each lane holds two adjacent values of a row, whatever their type.
        Part::C => {
            let (values, index) = if per == 2 { (2, reg * 2 + half) } else { (2, reg) };
            let (pair, one) = (index / values, index % values);
            let pieces = m / 8;
            let (down, right) = (pair % pieces, pair / pieces);
            (down * 8 + group, right * 8 + within * 2 + one)
        }
        Part::A => {
            let pieces = m / 8;
            let across = k / width;
            let reg = reg % (pieces * across);
            let (down, right) = (reg % pieces, reg / pieces);
            (down * 8 + group, right * width + within * per + half)
        }
        Part::B => {
            let pieces = n / 8;
            let across = k / width;
            let reg = reg % (pieces * across);
            let (down, right) = (reg % across, reg / across);
            (down * width + within * per + half, right * 8 + group)
        }
    }
}

/// Adds the product of two matrices to `sums`, which has `n` columns; all are row-major.
pub fn add_product(left: &[f32], right: &[f32], sums: &mut [f32], n: usize) {
    let k = right.len() / n;
    for (sums, left) in sums.chunks_mut(n).zip(left.chunks(k)) {
        for (x, row) in left.iter().zip(right.chunks(n)) {
            for (sum, y) in sums.iter_mut().zip(row) {
                *sum += x * y;
            }
        }
    }
}

pub fn multiply(
    shape: (usize, usize, usize),
    types: [Ty; 4],
    a: &[[u32; LANES]],
    b: &[[u32; LANES]],
    c: &[[u32; LANES]],
    registers: usize,
) -> Outcome<Vec<[u32; LANES]>> {
    let (m, n, k) = shape;
    let [d_ty, a_ty, b_ty, c_ty] = types;
    if !matches!(a_ty, Ty::F16 | Ty::BF16 | Ty::Tf32) {
        return Err(format!("products of {a_ty:?} are not known"));
    }
    let mut left = vec![f32::NAN; m * k];
    let mut right = vec![f32::NAN; k * n];
    let mut sums = vec![f32::NAN; m * n];
    let fill = |part: Part, ty: Ty, regs: &[[u32; LANES]], to: &mut [f32], columns: usize| {
        for lane in 0..LANES {
            for (r, reg) in regs.iter().enumerate() {
                for half in 0..per_register(ty) {
                    let (row, column) = position(part, shape, ty, lane, r, half);
                    to[row * columns + column] = decoded(ty, reg[lane], half);
                }
            }
        }
    };
    fill(Part::A, a_ty, a, &mut left, k);
    fill(Part::B, b_ty, b, &mut right, n);
    fill(Part::C, c_ty, c, &mut sums, n);
    add_product(&left, &right, &mut sums, n);
    let mut out = vec![[0u32; LANES]; registers];
    for lane in 0..LANES {
        for (r, reg) in out.iter_mut().enumerate() {
            for half in 0..per_register(d_ty) {
                let (row, column) = position(Part::C, shape, d_ty, lane, r, half);
                reg[lane] |= (encoded(d_ty, sums[row * n + column]) as u32) << (16 * half);
            }
        }
    }
    Ok(out)
}

/// Checks the alignment that the PTX manual requires of a matrix in memory.
fn aligned(base: u64, stride: u64, ty: Ty) -> Outcome<()> {
    if !base.is_multiple_of(32) {
        return Err(format!("the matrix at {base:#x} does not begin at a multiple of 32 bytes"));
    }
    if !(stride * ty.bytes() as u64).is_multiple_of(16) {
        return Err(format!("rows of {stride} values are no multiple of 16 bytes"));
    }
    Ok(())
}

impl Block<'_> {
    pub fn matrix(&mut self, warp: &mut Warp, op: &Op, mask: u32) -> Outcome<()> {
        match op {
            Op::FragmentLoad { part, row, shape, ty, space, d, at, stride } => {
                let base = self.addresses(warp, at)[0];
                let stride = warp.word(*stride, self)[0] as u64;
                aligned(base, stride, *ty)?;
                let mut regs = vec![[0u32; LANES]; d.len()];
                let mut touched = vec![[0u64; LANES]; d.len()];
                for lane in 0..LANES {
                    for (reg, values) in regs.iter_mut().enumerate() {
                        for half in 0..per_register(*ty) {
                            let (r, c) = position(*part, *shape, *ty, lane, reg, half);
                            let index = if *row { r as u64 * stride + c as u64 } else { c as u64 * stride + r as u64 };
                            let at = base + index * ty.bytes() as u64;
                            if half == 0 {
                                touched[reg][lane] = at;
                            }
                            let v = self.element(warp, lane, *space, at, *ty)?;
                            values[lane] |= (encoded(*ty, v) as u32) << (16 * half);
                        }
                    }
                }
                if self.launch.profile {
                    touched.iter().for_each(|at| self.counts.touch(*space, at, 4, u32::MAX));
                }
                for (d, v) in d.iter().zip(&regs) {
                    warp.set_word(*d, v, u32::MAX);
                }
            }
            Op::FragmentStore { row, shape, ty, space, values, at, stride } => {
                let base = self.addresses(warp, at)[0];
                let stride = warp.word(*stride, self)[0] as u64;
                aligned(base, stride, *ty)?;
                let regs: Vec<Lanes<u32>> = values.iter().map(|v| warp.word(*v, self)).collect();
                let mut touched = vec![[0u64; LANES]; values.len()];
                for lane in members(mask) {
                    for (reg, values) in regs.iter().enumerate() {
                        for half in 0..per_register(*ty) {
                            let (r, c) = position(Part::C, *shape, *ty, lane, reg, half);
                            let index = if *row { r as u64 * stride + c as u64 } else { c as u64 * stride + r as u64 };
                            let at = base + index * ty.bytes() as u64;
                            touched[reg][lane] = at;
                            let place = self.aligned_pointer(warp, lane, *space, at, ty.bytes() as u64)?;
                            self.record_access(warp, lane, *space, at, ty.bytes() as u64, true);
                            unsafe {
                                match ty.bytes() {
                                    2 => *(place as *mut u16) = (values[lane] >> (16 * half)) as u16,
                                    _ => *(place as *mut u32) = values[lane],
                                }
                            }
                        }
                    }
                }
                if self.launch.profile {
                    touched.iter().for_each(|at| self.counts.touch(*space, at, 4, mask));
                }
            }
            Op::Multiply { shape, types, d, a, b, c } => {
                self.counts.matrix_macs += (shape.0 * shape.1 * shape.2) as u64;
                let get = |list: &[Src]| list.iter().map(|s| warp.word(*s, self)).collect::<Vec<_>>();
                let (a, b, c) = (get(a), get(b), get(c));
                let out = multiply(*shape, *types, &a, &b, &c, d.len())?;
                for (d, v) in d.iter().zip(&out) {
                    warp.set_word(*d, v, u32::MAX);
                }
            }
            Op::LoadMatrix { transposed, d, at, space } => {
                let addresses = self.addresses(warp, at);
                let space = if *space == Space::Generic { Space::Generic } else { Space::Shared };
                for (i, d) in d.iter().enumerate() {
                    let mut tile = [[0u16; 8]; 8];
                    if self.launch.profile {
                        self.counts.touch(space, &addresses, 16, 0xff << (8 * i));
                    }
                    for (row, values) in tile.iter_mut().enumerate() {
                        let lane = 8 * i + row;
                        let from = self.aligned_pointer(warp, lane, space, addresses[lane], 16)?;
                        self.record_access(warp, lane, space, addresses[lane], 16, false);
                        for (c, v) in values.iter_mut().enumerate() {
                            *v = unsafe { *(from as *const u16).add(c) };
                        }
                    }
                    let v: Lanes<u32> = std::array::from_fn(|lane| {
                        let (r, c) = (lane / 4, lane % 4 * 2);
                        let (low, high) =
                            if *transposed { (tile[c][r], tile[c + 1][r]) } else { (tile[r][c], tile[r][c + 1]) };
                        low as u32 | (high as u32) << 16
                    });
                    warp.set_word(*d, &v, u32::MAX);
                }
            }
            Op::StoreMatrix { transposed, values, at, space } => {
                let addresses = self.addresses(warp, at);
                let space = if *space == Space::Generic { Space::Generic } else { Space::Shared };
                for (i, value) in values.iter().enumerate() {
                    let v = warp.word(*value, self);
                    if self.launch.profile {
                        self.counts.touch(space, &addresses, 16, 0xff << (8 * i));
                    }
                    for row in 0..8 {
                        let lane = 8 * i + row;
                        let to = self.aligned_pointer(warp, lane, space, addresses[lane], 16)?;
                        self.record_access(warp, lane, space, addresses[lane], 16, true);
                        for c in 0..8 {
                            let (holder, half) =
                                if *transposed { (c * 4 + row / 2, row % 2) } else { (row * 4 + c / 2, c % 2) };
                            unsafe { *(to as *mut u16).add(c) = (v[holder] >> (16 * half)) as u16 };
                        }
                    }
                }
            }
            _ => unreachable!("only matrix instructions"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_has_a_place() {
        for shape in [(16, 16, 16), (32, 8, 16), (8, 32, 16), (16, 8, 16), (16, 8, 8)] {
            for ty in [Ty::BF16, Ty::F32] {
                for (part, size) in
                    [(Part::A, (shape.0, shape.2)), (Part::B, (shape.2, shape.1)), (Part::C, (shape.0, shape.1))]
                {
                    let registers = size.0 * size.1 / 32 / per_register(ty);
                    let mut seen = std::collections::HashSet::new();
                    for lane in 0..LANES {
                        for reg in 0..registers {
                            for half in 0..per_register(ty) {
                                let at = position(part, shape, ty, lane, reg, half);
                                assert!(at.0 < size.0 && at.1 < size.1);
                                seen.insert(at);
                            }
                        }
                    }
                    assert_eq!(seen.len(), size.0 * size.1, "{shape:?} {ty:?} {part:?}");
                }
            }
        }
    }
}
