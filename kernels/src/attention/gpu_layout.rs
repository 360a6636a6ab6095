//! How the attention kernels read the joint projection of queries, keys and values, and how they
//! are launched.

use crate::dropout::gpu::{Mask, mask_launch};
use crate::{DropoutMask, Heads, gpu::prelude::*, gpu::tile::head_vector_size};

/// Positions of the heads in a joint projection, in vectors.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub struct Layout {
    /// Positions of a row of the batch.
    pub time: usize,
    /// Positions before the first row.
    pub before: usize,
    /// The first row of this launch.
    pub first_row: usize,
    /// Query heads.
    pub n_head: usize,
    /// Key/value heads.
    pub n_kv_head: usize,
    /// Factor that scores are multiplied by.
    pub scale: f32,
    /// Dropout of the weights; unused without dropout.
    pub drop: Mask,
}

#[cube]
impl Layout {
    /// Number of heads of a position: queries, keys and values, side by side.
    pub fn all_heads(&self) -> usize {
        self.n_head + 2 * self.n_kv_head
    }

    /// Index among them of the key head that serves query head `head`.
    pub fn keys_for(&self, head: usize) -> usize {
        self.n_head + head / (self.n_head / self.n_kv_head)
    }
}

/// Shape of the joint projection, vector width, and dropout.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Rows of the batch.
    pub batch: usize,
    /// Positions of a row.
    pub time: usize,
    /// Positions before the first row.
    pub before: usize,
    /// How the width is divided into heads.
    pub heads: Heads,
    /// Vector width: numbers that a unit loads at once; divides the head size.
    pub vector_size: usize,
    /// Dropout of the weights, if any.
    pub dropout: Option<DropoutMask>,
}

impl Shape {
    /// The shape of `qkv` `[batch, time, (n_head + 2 n_kv_head) head_size]`, with vectors of
    /// `widest` numbers if the head size allows.
    pub fn new(qkv: &CubeTensor, heads: Heads, widest: usize, dropout: Option<DropoutMask>) -> Self {
        let (shape, vector_size) = (qkv.meta.shape(), head_vector_size(heads.head_size, widest));
        Self { batch: shape[0], time: shape[1], before: 0, heads, vector_size, dropout }
    }

    /// Vectors in a head.
    pub fn vectors(&self) -> usize {
        self.heads.head_size / self.vector_size
    }

    /// The launches with a cube of `units` for every tile of `rows` positions of each of `heads`,
    /// as many as the device needs: each grid, with the kernels' argument.
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
        runs(batch, most as usize).map(move |(first, batch_rows)| {
            let cubes = CubeCount::Static(tiles, heads as u32, batch_rows as u32);
            let drop = mask_launch(self.dropout);
            let layout = LayoutLaunch::new(self.time, self.before, first, n_head, n_kv_head, scale, drop);
            (Grid::new(&[qkv], cubes, CubeDim::new_1d(units as u32)), layout)
        })
    }
}

/// Splits `count` items into runs of at most `most`: the start and length of each.
fn runs(count: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    let most = most.max(1);
    (0..count).step_by(most).map(move |first| (first, most.min(count - first)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_cut_where_a_launch_ends() {
        let cut = |count, most| runs(count, most).collect::<Vec<_>>();
        assert_eq!(cut(5, 65_535), [(0, 5)]);
        assert_eq!(cut(65_535, 65_535), [(0, 65_535)]);
        assert_eq!(cut(131_071, 65_535), [(0, 65_535), (65_535, 65_535), (131_070, 1)]);
        assert_eq!(cut(0, 65_535), []);
    }
}
