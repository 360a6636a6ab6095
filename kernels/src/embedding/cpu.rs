//! Embedding lookup on the CPU, by burn, and the gradient of the table.

use burn::backend::ops::ModuleOps;

use super::Embed;
use crate::cpu::prelude::*;

impl Operation<Flex, 1> for Embed {
    type Kept = ();

    fn forward(&self, [weight]: [FlexTensor; 1]) -> ([FlexTensor; 1], ()) {
        ([Flex::embedding(weight, flex(self.ids.clone()))], ())
    }

    fn backward(&self, (): (), dy: FlexTensor) -> [FlexTensor; 1] {
        let (ids, dy) = (int32(flex(self.ids.clone())), float32(dy));
        let [_, _, n_embd] = dims(&dy);
        let size = [self.rows, n_embd];
        [tensor_of(backward(values(&ids), values(&dy), size), size)]
    }
}

/// Values that one task writes or adds, roughly: fewer are not worth a task.
const CHUNK: usize = 65_536;
/// Maximum number of parts of the table. One task sums the gradient of each part, and scans all ids
/// for it.
const PARTS: usize = 64;

/// Gradient of a table `[rows, n_embd]`: each row of `dy` is added to the row of its id, in the
/// order of `dy`.
pub fn backward(ids: &[i32], dy: &[f32], [rows, n_embd]: [usize; 2]) -> Vec<f32> {
    let mut dweight = unfilled(rows * n_embd);
    let parts = ((ids.len() + rows) * n_embd / CHUNK).clamp(1, PARTS);
    let part = rows.div_ceil(parts);
    dweight.par_chunks_mut(part * n_embd).enumerate().for_each(|(number, dweight)| {
        dweight.fill(0.0);
        let first = number * part;
        let mine = first..first + dweight.len() / n_embd;
        for (&id, dy) in ids.iter().zip(dy.chunks_exact(n_embd)) {
            if mine.contains(&(id as usize)) {
                let row = &mut dweight[(id as usize - first) * n_embd..][..n_embd];
                row.iter_mut().zip(dy).for_each(|(sum, dy)| *sum += dy);
            }
        }
    });
    dweight
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_row_gets_the_sum_of_its_ids(
            rows in 1usize..200, n_embd in 1usize..300, ids in prop::collection::vec(0usize..1000, 0..300),
        ) {
            let ids: Vec<i32> = ids.iter().map(|id| (id % rows) as i32).collect();
            let dy: Vec<f32> = (0..ids.len() * n_embd).map(|i| ((i * 37 + 11) % 23) as f32 - 9.5).collect();
            let mut want = vec![0.0; rows * n_embd]; // sums of these are exact
            for (&id, dy) in ids.iter().zip(dy.chunks(n_embd)) {
                want[id as usize * n_embd..][..n_embd].iter_mut().zip(dy).for_each(|(sum, dy)| *sum += dy);
            }
            prop_assert_eq!(backward(&ids, &dy, [rows, n_embd]), want);
        }
    }
}
