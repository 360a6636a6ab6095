//! Sums over the units of a cube, by a tree whose shape the size of the cube fixes: the same device
//! gives the same bits.

use cubecl::prelude::*;

/// Units of a cube that sums; every device has as many.
pub const UNITS: u32 = 256;

/// The sum of each unit's `value`, for all units of a cube of `units`, a power of two.
#[cube]
pub fn cube_sum(value: f32, #[comptime] units: u32) -> f32 {
    over_cube(value, units, false)
}

/// The largest of each unit's `value`, for all units of a cube of `units`, a power of two.
#[cube]
pub fn cube_max(value: f32, #[comptime] units: u32) -> f32 {
    over_cube(value, units, true)
}

#[cube]
fn over_cube(value: f32, #[comptime] units: u32, #[comptime] largest: bool) -> f32 {
    let mut values = Shared::<[f32]>::new_slice(units as usize);
    values[UNIT_POS as usize] = value;
    sync_cube();
    let mut rest = (units / 2).runtime();
    while rest > 0 {
        if UNIT_POS < rest {
            let other = values[(UNIT_POS + rest) as usize];
            if !largest {
                values[UNIT_POS as usize] += other;
            } else if other > values[UNIT_POS as usize] {
                values[UNIT_POS as usize] = other;
            }
        }
        sync_cube();
        rest /= 2;
    }
    values[0]
}
