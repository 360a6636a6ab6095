//! Converts between the layouts of different formats.

/// The transpose of a matrix with `columns` columns.
pub fn transposed(values: &[f32], columns: usize) -> Vec<f32> {
    /// Rows processed together: the values of a cache line.
    const BLOCK_ROWS: usize = 16;
    let rows = values.len() / columns.max(1);
    let mut out = vec![0.0; values.len()];
    for first in (0..rows).step_by(BLOCK_ROWS) {
        let last = (first + BLOCK_ROWS).min(rows);
        for column in 0..columns {
            for row in first..last {
                out[column * rows + row] = values[row * columns + column];
            }
        }
    }
    out
}

/// Within each of `heads` heads, moves the rows of each pair `(i, i + half)` next to each other:
/// from the rotary layout of Hugging Face's Llama to Meta's own, which GGUF and llama2.c use. A
/// bias is a matrix of one column.
pub fn paired(values: &[f32], heads: usize, columns: usize) -> Vec<f32> {
    permute_heads(values, heads, columns, |row, half| row / 2 + half * (row % 2))
}

/// The inverse of [`paired`].
pub fn unpaired(values: &[f32], heads: usize, columns: usize) -> Vec<f32> {
    permute_heads(values, heads, columns, |row, half| 2 * (row % half) + row / half)
}

/// Reorders rows within each head: row `row` becomes the old row `from(row, half a head)`.
fn permute_heads(values: &[f32], heads: usize, columns: usize, from: impl Fn(usize, usize) -> usize) -> Vec<f32> {
    let head = values.len() / heads.max(1);
    let rows = head / columns.max(1);
    let mut out = Vec::with_capacity(values.len());
    for head in values.chunks_exact(head.max(1)) {
        for row in 0..rows {
            out.extend_from_slice(&head[from(row, rows / 2) * columns..][..columns]);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_four_rows_are_paired_and_put_back() {
        let rows = [0.0, 1.0, 2.0, 3.0, 10.0, 11.0, 12.0, 13.0];
        assert_eq!(paired(&rows, 2, 1), [0.0, 2.0, 1.0, 3.0, 10.0, 12.0, 11.0, 13.0]);
        assert_eq!(unpaired(&paired(&rows, 2, 1), 2, 1), rows);
        assert_eq!(paired(&rows, 1, 2), [0.0, 1.0, 10.0, 11.0, 2.0, 3.0, 12.0, 13.0]);
    }

    #[test]
    fn a_matrix_is_transposed() {
        assert_eq!(transposed(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 3), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        let tall: Vec<f32> = (0..35 * 3).map(|value| value as f32).collect();
        assert_eq!(transposed(&transposed(&tall, 3), 35), tall);
    }
}
