//! Rows of an embedding table, and the gradient that goes back to them.

use rayon::prelude::*;

use super::tensor::unfilled;

/// Values that one task copies or adds, about: fewer are not worth a task.
const CHUNK: usize = 65_536;
/// Most parts of the table whose gradients are summed by one task each, every one by a look at all ids.
const PARTS: usize = 64;

/// Row `id` of `weight` (rows of `n_embd` values) for each of `ids`.
pub fn forward(weight: &[f32], ids: &[i32], n_embd: usize) -> Vec<f32> {
    let mut y = unfilled(ids.len() * n_embd);
    let rows = CHUNK.div_ceil(n_embd);
    y.par_chunks_mut(rows * n_embd).zip(ids.par_chunks(rows)).for_each(|(y, ids)| {
        for (y, &id) in y.chunks_exact_mut(n_embd).zip(ids) {
            y.copy_from_slice(&weight[id as usize * n_embd..][..n_embd]);
        }
    });
    y
}

/// Gradient of a table `[rows, n_embd]`: the rows of `dy` are added to their ids' in the order in which they stand.
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
        fn rows_go_out_and_their_gradients_come_back(
            rows in 1usize..200, n_embd in 1usize..20, ids in prop::collection::vec(0usize..1000, 0..300),
        ) {
            let ids: Vec<i32> = ids.iter().map(|id| (id % rows) as i32).collect();
            let weight: Vec<f32> = (0..rows * n_embd).map(|i| i as f32).collect();
            let y = forward(&weight, &ids, n_embd);
            let dy: Vec<f32> = (0..y.len()).map(|i| ((i * 37 + 11) % 23) as f32 - 9.5).collect(); // sums of these are exact
            let mut want = vec![0.0; rows * n_embd];
            for (place, &id) in ids.iter().enumerate() {
                for i in 0..n_embd {
                    prop_assert_eq!(y[place * n_embd + i], weight[id as usize * n_embd + i]);
                    want[id as usize * n_embd + i] += dy[place * n_embd + i];
                }
            }
            prop_assert_eq!(backward(&ids, &dy, [rows, n_embd]), want);
        }
    }
}
