//! How the kernels read a joint projection of queries, keys and values, and in which launches.

use crate::dropout::gpu::{Mask, mask_launch};
use crate::{DropoutMask, Heads, gpu::prelude::*, gpu::tile::head_vector_size};

/// Where the heads of a joint projection stand, in vectors.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub struct Layout {
    /// Positions of a row of the batch.
    pub time: usize,
    /// Positions before the first row.
    pub before: usize,
    /// The first row of this launch.
    pub first_row: usize,
    /// Heads of queries, and of keys and values.
    pub n_head: usize,
    /// See `n_head`.
    pub n_kv_head: usize,
    /// What scores are multiplied by.
    pub scale: f32,
    /// By what weights are dropped, where they are.
    pub drop: Mask,
}

#[cube]
impl Layout {
    /// All heads of a position: of queries, of keys and of values, side by side.
    pub fn all_heads(&self) -> usize {
        self.n_head + 2 * self.n_kv_head
    }

    /// Among them the head of keys that serves head `head` of queries.
    pub fn keys_for(&self, head: usize) -> usize {
        self.n_head + head / (self.n_head / self.n_kv_head)
    }
}

/// Shapes of the joint projection, how it is read, and what becomes of the weights.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Rows of the batch, and positions of each.
    pub batch: usize,
    /// See `batch`.
    pub time: usize,
    /// Positions before the first row.
    pub before: usize,
    /// How the width is divided.
    pub heads: Heads,
    /// Numbers that are read at once: they divide a head.
    pub vector_size: usize,
    /// What drops weights, where anything does.
    pub dropout: Option<DropoutMask>,
}

impl Shape {
    /// That of `qkv` `[batch, time, (n_head + 2 n_kv_head) head_size]`, read `widest` numbers at a
    /// time where the heads allow.
    pub fn new(qkv: &CubeTensor, heads: Heads, widest: usize, dropout: Option<DropoutMask>) -> Self {
        let (shape, vector_size) = (qkv.meta.shape(), head_vector_size(heads.head_size, widest));
        Self { batch: shape[0], time: shape[1], before: 0, heads, vector_size, dropout }
    }

    /// Vectors in the width of a head.
    pub fn vectors(&self) -> usize {
        self.heads.head_size / self.vector_size
    }

    /// A cube of so many `units` for every tile of `rows` positions of each of `heads`, in as many
    /// launches as the device needs for them, and the kernels' argument in each.
    pub fn launches(
        &self,
        qkv: &CubeTensor,
        rows: usize,
        units: usize,
        heads: usize,
    ) -> impl Iterator<Item = (Grid, LayoutLaunch)> {
        let (_, _, most) = qkv.client.properties().hardware.max_cube_count;
        let Heads { n_head, n_kv_head, .. } = self.heads;
        let (tiles, scale) = (self.time.div_ceil(rows) as u32, self.heads.scale());
        let batch = if self.time > 0 { self.batch } else { 0 };
        stretches(batch, most as usize).map(move |(first, batch_rows)| {
            let cubes = CubeCount::Static(tiles, heads as u32, batch_rows as u32);
            let drop = mask_launch(self.dropout);
            let layout = LayoutLaunch::new(self.time, self.before, first, n_head, n_kv_head, scale, drop);
            (Grid::new(&[qkv], cubes, CubeDim::new_1d(units as u32)), layout)
        })
    }
}

/// `count` things in stretches of at most `most`: where each begins, and how many it has.
fn stretches(count: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    let most = most.max(1);
    (0..count).step_by(most).map(move |first| (first, most.min(count - first)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_cut_where_a_launch_ends() {
        let cut = |count, most| stretches(count, most).collect::<Vec<_>>();
        assert_eq!(cut(5, 65_535), [(0, 5)]);
        assert_eq!(cut(65_535, 65_535), [(0, 65_535)]);
        assert_eq!(cut(131_071, 65_535), [(0, 65_535), (65_535, 65_535), (131_070, 1)]);
        assert_eq!(cut(0, 65_535), []);
    }
}
