//! A weight matrix in panels: its storage types, packing, and reading back columns.

use std::{ops::Range, sync::Arc};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::int8::{GROUP, Int8Rows};
use super::stretch::{Bf16Row, F32Row, PANEL, Stretch};
use crate::arena::{ArenaError, Memory, Part};

/// Storage type of weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WeightType {
    /// 32 bits.
    #[default]
    F32,
    /// 16 bits: float32's range with 8 bits of precision.
    Bf16,
    /// 8 bits and a shared scale.
    Int8,
}

impl WeightType {
    /// `f32`, `bf16` or `int8`.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
        }
    }

    /// Bytes of a packed matrix `[n_in, n_out]`.
    pub fn bytes(self, n_in: usize, n_out: usize) -> usize {
        let of_panel = match self {
            Self::F32 => n_in * size_of::<F32Row>(),
            Self::Bf16 => n_in * size_of::<Bf16Row>(),
            Self::Int8 => n_in.div_ceil(GROUP) * size_of::<Int8Rows>(),
        };
        n_out.div_ceil(PANEL) * of_panel
    }
}

/// A matrix to pack.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// `[n_in, n_out]`, row after row.
    Rows(&'a [f32]),
    /// `[n_out, n_in]`, row after row: an embedding table that the head multiplies with.
    Columns(&'a [f32]),
}

/// A packed matrix, and the bias of its product, if there is one.
#[derive(Clone, Debug)]
pub struct Packed {
    pub(super) part: Arc<Part>,
    /// Rows and columns. This and the next field must match the contents of `part`, so only `new`
    /// sets them: otherwise a product would leave values of its result unwritten.
    pub(super) size: [usize; 2],
    pub(super) weight_type: WeightType,
    pub(super) bias: Option<Arc<[f32]>>,
}

impl Packed {
    /// Memory for matrices of these sizes `[n_in, n_out]`, in the order in which they are packed
    /// and a token reads them.
    ///
    /// # Errors
    /// When the system refuses the memory.
    pub fn room(weight_type: WeightType, sizes: impl Iterator<Item = [usize; 2]>) -> Result<Arc<Memory>, ArenaError> {
        Memory::new(sizes.map(|[n_in, n_out]| weight_type.bytes(n_in, n_out)))
    }

    /// Packs a matrix `[n_in, n_out]` into the next part of `memory`, which has room for it.
    ///
    /// # Panics
    /// When the next part is not for a matrix of this size.
    pub fn new(
        memory: &Arc<Memory>,
        weight_type: WeightType,
        source: Source,
        size: [usize; 2],
        bias: Option<&[f32]>,
    ) -> Self {
        let mut part = memory.take();
        let bytes = part.values::<u8>().len();
        assert_eq!(bytes, weight_type.bytes(size[0], size[1]), "room for another matrix than {size:?}");
        match weight_type {
            WeightType::F32 => fill::<F32Row>(part.values_mut(), source, size),
            WeightType::Bf16 => fill::<Bf16Row>(part.values_mut(), source, size),
            WeightType::Int8 => fill::<Int8Rows>(part.values_mut(), source, size),
        }
        Self { part: Arc::new(part), size, weight_type, bias: bias.map(Arc::from) }
    }

    /// Rows and columns.
    pub fn size(&self) -> [usize; 2] {
        self.size
    }

    /// The weights' storage type.
    pub fn weight_type(&self) -> WeightType {
        self.weight_type
    }

    /// The panels, of stretches of type `S`, which must match `weight_type`.
    pub(super) fn panels<S: Stretch>(&self) -> impl ExactSizeIterator<Item = &[S]> {
        self.part.values().chunks_exact(self.size[0].div_ceil(S::ROWS))
    }

    /// Some columns, one after another, `n_in` values each: the vectors of ids in a packed
    /// embedding.
    ///
    /// # Panics
    /// When the matrix has no such column.
    pub fn columns(&self, columns: &[u32]) -> Vec<f32> {
        let [n_in, n_out] = self.size;
        // The last panel is padded with zeros.
        assert!(columns.iter().all(|&column| (column as usize) < n_out), "a column beyond the {n_out} that there are");
        let mut values = vec![0.0; columns.len() * n_in];
        values.par_chunks_mut(n_in).zip(columns.par_iter()).for_each(|(values, &column)| match self.weight_type {
            WeightType::F32 => self.read_column::<F32Row>(column as usize, values),
            WeightType::Bf16 => self.read_column::<Bf16Row>(column as usize, values),
            WeightType::Int8 => self.read_column::<Int8Rows>(column as usize, values),
        });
        values
    }

    fn read_column<S: Stretch>(&self, column: usize, values: &mut [f32]) {
        let per_panel = self.size[0].div_ceil(S::ROWS);
        let panel = &self.part.values::<S>()[column / PANEL * per_panel..][..per_panel];
        for (values, stretch) in values.chunks_mut(S::ROWS).zip(panel) {
            for (row, value) in values.iter_mut().enumerate() {
                *value = stretch.weight(row, column % PANEL);
            }
        }
    }
}

/// Adjacent panels per packing task, so that it reads longer pieces of the source.
const TOGETHER: usize = 2;

fn fill<S: Stretch>(stretches: &mut [S], source: Source, [n_in, n_out]: [usize; 2]) {
    let per_panel = n_in.div_ceil(S::ROWS);
    stretches.par_chunks_mut(TOGETHER * per_panel).enumerate().for_each(|(task, panels)| {
        let mut tile = [[0f32; PANEL]; GROUP];
        for first in (0..n_in).step_by(GROUP) {
            for (place, panel) in panels.chunks_exact_mut(per_panel).enumerate() {
                let columns = (task * TOGETHER + place) * PANEL;
                source.read(&mut tile, [n_in, n_out], first, columns..n_out.min(columns + PANEL));
                let stretches = panel[first / S::ROWS..].iter_mut();
                stretches.zip(tile.chunks_exact(S::ROWS)).for_each(|(stretch, rows)| stretch.store(rows));
            }
        }
    });
}

impl Source<'_> {
    /// Reads the rows from `first` on at the given columns, with zeros beyond the matrix.
    fn read(self, tile: &mut [[f32; PANEL]; GROUP], [n_in, n_out]: [usize; 2], first: usize, columns: Range<usize>) {
        let rows = GROUP.min(n_in - first);
        if rows < GROUP || columns.len() < PANEL {
            *tile = [[0.0; PANEL]; GROUP];
        }
        match self {
            Source::Rows(values) => {
                for (row, into) in tile.iter_mut().enumerate().take(rows) {
                    into[..columns.len()].copy_from_slice(&values[(first + row) * n_out..][columns.clone()]);
                }
            }
            Source::Columns(values) => {
                for (column, from) in columns.enumerate() {
                    for (into, value) in tile.iter_mut().zip(&values[from * n_in + first..][..rows]) {
                        into[column] = *value;
                    }
                }
            }
        }
    }
}
