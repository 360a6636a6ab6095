//! Token ids to tensors, and tensors to numbers.

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

/// Length of the common prefix of two token sequences.
pub(crate) fn common_prefix(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The numbers of a tensor, row-major.
///
/// # Errors
/// If the device failed; errors of earlier asynchronous operations surface here.
pub fn from_tensor<const D: usize>(tensor: Tensor<D>) -> Result<Vec<f32>> {
    tensor.into_data().try_into_vec::<f32>().map_err(Error::device)
}

/// Rows of equal length as a tensor, `[batch, time]`.
pub fn to_tensor(rows: &[&[u32]], device: &Device) -> Tensor<2, Int> {
    let shape = [rows.len(), rows.first().map_or(0, |row| row.len())];
    let ids: Vec<i32> = rows.iter().flat_map(|row| row.iter().map(|&id| id as i32)).collect();
    Tensor::from_data(TensorData::new(ids, shape), device)
}
