//! The lanes of a warp, which execute in lockstep.

/// Threads per warp.
pub const LANES: usize = 32;
/// One value per lane.
pub type Lanes<T> = [T; LANES];
/// A result, or a message about a kernel's forbidden operation.
pub type Outcome<T> = Result<T, String>;

/// The lanes whose bits are set in a mask.
pub fn members(mask: u32) -> impl Iterator<Item = usize> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        (rest != 0).then(|| {
            let lane = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            lane
        })
    })
}
