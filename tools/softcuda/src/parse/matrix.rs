//! Parses the matrix instructions of warpgroups and warps, and the loads and stores of fragments.

use super::{Names, count};
use crate::ptx::*;

impl Names<'_> {
    pub(super) fn warpgroup(&self, parts: &[&str], args: &[String], types: &[Ty]) -> Result<Op, String> {
        Ok(match (parts[1], args) {
            // No effect here, as instructions execute in order.
            ("fence", []) => Op::Nothing,
            ("commit_group", []) => Op::CommitProducts,
            ("wait_group", [most]) => Op::AwaitProducts { most: count(most)? },
            ("mma_async", [sums, a, b, accumulate, signs_and_layouts @ ..]) => {
                let (m, columns, k) = shape(parts)?;
                let [Ty::F32, ty @ (Ty::BF16 | Ty::F16), other] = *types else {
                    return Err(format!("wgmma of {types:?} is not supported"));
                };
                if (m, k) != (64, 16) || !matches!(columns, 8..=256) || columns % 8 != 0 || ty != other {
                    return Err(format!("wgmma of m{m}n{columns}k{k} and {types:?}"));
                }
                let sums = self.regs(sums)?;
                if sums.len() != columns / 2 {
                    return Err(format!("{} registers for {columns} columns", sums.len()));
                }
                let negative = |text: &str| match text {
                    "1" => Ok(false),
                    "-1" => Ok(true),
                    _ => Err(format!("a sign of {text}")),
                };
                let transposed = |text: &str| match text {
                    "0" => Ok(false),
                    "1" => Ok(true),
                    _ => Err(format!("transposed: {text}")),
                };
                let described = |descriptor: &str, layout: &str| -> Result<Place, String> {
                    Ok(Place::Shared { descriptor: self.src(descriptor)?, transposed: transposed(layout)? })
                };
                // Only factors in shared memory have a layout operand.
                let (signs, places) = match (a.starts_with('{'), signs_and_layouts) {
                    (false, [sign_a, sign_b, layout_a, layout_b]) => {
                        ([sign_a, sign_b], [described(a, layout_a)?, described(b, layout_b)?])
                    }
                    (true, [sign_a, sign_b, layout_b]) => {
                        let registers = self.srcs(a)?.try_into().map_err(|_| "A is not in four registers")?;
                        ([sign_a, sign_b], [Place::Registers(registers), described(b, layout_b)?])
                    }
                    (registers, _) => {
                        let many = if registers { "seven operands where A is in registers" } else { "eight operands" };
                        return Err(format!("wgmma has {many}"));
                    }
                };
                let [place_a, place_b] = places;
                let factors = [
                    Operand { place: place_a, negative: negative(signs[0])? },
                    Operand { place: place_b, negative: negative(signs[1])? },
                ];
                let accumulate = self.src(accumulate)?;
                if !matches!(accumulate, Src::Reg(Reg::Pred(_)) | Src::NotPred(_) | Src::Imm(_)) {
                    return Err("whether old sums count is told by no predicate".into());
                }
                Op::WarpgroupMultiply { columns, ty, sums, factors, accumulate }
            }
            _ => Op::Unknown(parts.join(".")),
        })
    }

    pub(super) fn matrix(&self, parts: &[&str], args: &[String], types: &[Ty], space: Space) -> Result<Op, String> {
        let shape = shape(parts)?;
        let layouts: Vec<bool> = parts.iter().filter(|p| **p == "row" || **p == "col").map(|p| *p == "row").collect();
        if parts[0] == "mma" || parts[1] == "mma" {
            let types = match *types {
                [d, c] => [d, Ty::F16, Ty::F16, c],
                [d, a, b, c] => [d, a, b, c],
                _ => return Err("types".into()),
            };
            return Ok(Op::Multiply {
                shape,
                types,
                d: self.regs(&args[0])?,
                a: self.srcs(&args[1])?,
                b: self.srcs(&args[2])?,
                c: self.srcs(&args[3])?,
            });
        }
        let ty = *types.last().ok_or("type")?;
        if parts[1] == "load" {
            let part = match parts[2] {
                "a" => Part::A,
                "b" => Part::B,
                _ => Part::C,
            };
            return Ok(Op::FragmentLoad {
                part,
                row: layouts[0],
                shape,
                ty,
                space,
                d: self.regs(&args[0])?,
                at: self.address(&args[1])?,
                stride: self.src(&args[2])?,
            });
        }
        Ok(Op::FragmentStore {
            row: layouts[0],
            shape,
            ty,
            space,
            values: self.srcs(&args[1])?,
            at: self.address(&args[0])?,
            stride: self.src(&args[2])?,
        })
    }
}

/// `m64n256k16`
fn shape(parts: &[&str]) -> Result<(usize, usize, usize), String> {
    let parsed = parts.iter().find_map(|p| {
        let (m, rest) = p.strip_prefix('m')?.split_once('n')?;
        let (n, k) = rest.split_once('k')?;
        Some((m.parse().ok()?, n.parse().ok()?, k.parse().ok()?))
    });
    parsed.ok_or_else(|| "no shape".into())
}
