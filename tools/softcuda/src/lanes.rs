//! The lanes of a warp, which do the same at once.

/// So many threads are one warp.
pub const LANES: usize = 32;
/// A value of each lane.
pub type Lanes<T> = [T; LANES];
/// What went well, or what a kernel did that it must not.
pub type Outcome<T> = Result<T, String>;

/// The lanes of a mask.
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
