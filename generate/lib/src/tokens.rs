//! Token ids on their way into a model.

use burn::tensor::{Device, Int, Tensor, TensorData};

use crate::error::{Error, Result};

/// Refuses ids that the model has no embedding for.
///
/// # Errors
/// Names the first such id and the vocabulary's size.
pub fn check_ids(ids: &[u32], vocab_size: usize) -> Result<()> {
    match ids.iter().find(|&&id| id as usize >= vocab_size) {
        Some(&id) => Err(Error::OutsideVocabulary { id, vocab_size }),
        None => Ok(()),
    }
}

/// Rows of one length as a tensor, `[batch, time]`.
pub fn to_tensor(rows: &[&[u32]], device: &Device) -> Tensor<2, Int> {
    let shape = [rows.len(), rows.first().map_or(0, |row| row.len())];
    let ids: Vec<i32> = rows.iter().flat_map(|row| row.iter().map(|&id| id as i32)).collect();
    Tensor::from_data(TensorData::new(ids, shape), device)
}
