//! Exchanges weights and gradients. As in PyTorch's data parallel training, all processes begin
//! with rank 0's weights, and a step's gradients are summed in a few large buckets ([Li et al.
//! 2020](https://arxiv.org/abs/2006.15704), section 3.2). Equal gradients keep the weights equal on
//! machines of one kind, but not where one machine rounds differently: so the weights are compared.

use burn::tensor::{Tensor, TensorData};
use burn::{module::ParamId, optim::GradientsParams};
use ember_model::{Gpt, Parameter, ParameterMapper};
use xxhash_rust::xxh3::Xxh3Default;

use super::collectives::{all_gather, all_ok};
use super::process_group::ProcessGroup;
use crate::error::{GroupError, Result};

/// Most values in one bucket, unless a single parameter has more: 25 MiB of float32. Smaller
/// buckets would cost time waiting for the slowest process, larger ones memory for a second
/// gradient.
pub(super) const BUCKET: usize = 25 << 18;

/// The model with rank 0's weights.
///
/// # Errors
/// As [`ProcessGroup::broadcast`].
pub fn broadcast_weights(group: &dyn ProcessGroup, gpt: Gpt) -> Result<Gpt> {
    if group.size() == 1 {
        return Ok(gpt);
    }
    let mut broadcast = Broadcast { group, outcome: Ok(()) };
    let gpt = gpt.map_parameters(&mut broadcast);
    broadcast.outcome.map(|()| gpt)
}

struct Broadcast<'a> {
    group: &'a dyn ProcessGroup,
    /// The first error, if any.
    outcome: Result<()>,
}

impl ParameterMapper for Broadcast<'_> {
    fn map<const D: usize>(&mut self, _name: &str, _id: ParamId, tensor: Tensor<D>) -> Tensor<D> {
        let (shape, device) = (tensor.shape(), tensor.device());
        let mut bytes: Vec<u8> = tensor.into_data().iter::<f32>().flat_map(f32::to_le_bytes).collect();
        if self.outcome.is_ok() {
            self.outcome = self.group.broadcast(&mut bytes);
        }
        let values: Vec<f32> = bytes.as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)).collect();
        Tensor::from_data(TensorData::new(values, shape), &device)
    }
}

/// Ends all processes if one has other weights than rank 0.
///
/// # Errors
/// Names that process; only rank 0 reports it.
pub fn ensure_same_weights(group: &dyn ProcessGroup, gpt: &Gpt) -> Result<()> {
    if group.size() == 1 {
        return Ok(());
    }
    let hashes = all_gather(group, &hash(gpt).to_le_bytes())?;
    let other = hashes.iter().position(|hash| *hash != hashes[0]).filter(|_| group.leads());
    all_ok(group, other.map_or(Ok(()), |rank| Err(GroupError::OtherWeights(rank).into())))
}

/// A hash of every weight.
fn hash(gpt: &Gpt) -> u64 {
    let mut hash = Xxh3Default::new();
    gpt.for_each_parameter(&mut |_, _, values| {
        let bytes: Vec<u8> = values.into_iter().flat_map(f32::to_le_bytes).collect();
        hash.update(&bytes);
    });
    hash.digest()
}

/// The mean of all processes' losses and gradients, and whether any process requests a stop: the
/// same in each.
///
/// Each process has the mean over equally many windows, so the mean of the means is the mean over
/// all.
///
/// # Errors
/// As [`ProcessGroup::all_reduce`].
pub fn all_reduce_mean(
    group: &dyn ProcessGroup,
    gpt: &Gpt,
    loss: f64,
    gradients: GradientsParams,
    stop: bool,
) -> Result<(f64, GradientsParams, bool)> {
    all_reduce_mean_by(BUCKET, group, gpt, loss, gradients, stop)
}

/// As [`all_reduce_mean`], in buckets of at most `limit` values.
pub(super) fn all_reduce_mean_by(
    limit: usize,
    group: &dyn ProcessGroup,
    gpt: &Gpt,
    loss: f64,
    mut gradients: GradientsParams,
    stop: bool,
) -> Result<(f64, GradientsParams, bool)> {
    if group.size() == 1 {
        return Ok((loss, gradients, stop));
    }
    let buckets = buckets(gpt.parameters(), limit);
    // Loss and stop are sent with the last bucket.
    let mut extra = [loss as f32, f32::from(u8::from(stop))];
    for (number, bucket) in buckets.iter().enumerate() {
        let extra = if number + 1 == buckets.len() { &mut extra[..] } else { &mut [] };
        reduce_bucket(group, bucket, &mut gradients, extra)?;
    }
    let [loss, stop] = extra;
    Ok((f64::from(loss) / group.size() as f64, gradients, stop > 0.0))
}

/// The parameters in order, divided into buckets of at most `limit` values; a larger parameter is a
/// bucket by itself.
fn buckets(parameters: Vec<Parameter>, limit: usize) -> Vec<Vec<Parameter>> {
    let mut buckets = Vec::new();
    let (mut bucket, mut filled) = (Vec::new(), 0);
    for parameter in parameters {
        let n = values(&parameter);
        if filled > 0 && filled + n > limit {
            buckets.push(std::mem::take(&mut bucket));
            filled = 0;
        }
        filled += n;
        bucket.push(parameter);
    }
    buckets.push(bucket);
    buckets
}

fn values(parameter: &Parameter) -> usize {
    parameter.shape.iter().product()
}

/// Replaces the gradients of one bucket by their means over all processes, and `extra` by its sums.
fn reduce_bucket(
    group: &dyn ProcessGroup,
    bucket: &[Parameter],
    gradients: &mut GradientsParams,
    extra: &mut [f32],
) -> Result<()> {
    // Every process has the same model, so gradients for the same parameters.
    let (present, flat): (Vec<_>, Vec<_>) =
        bucket.iter().filter_map(|parameter| Some((parameter, take(gradients, parameter)?))).unzip();
    let device = flat.first().map(Tensor::device);
    // One tensor for all of them, so that the device is read and written once per bucket.
    let mut sums = if flat.is_empty() { Vec::new() } else { Tensor::cat(flat, 0).into_data().iter::<f32>().collect() };
    let n = sums.len();
    sums.extend_from_slice(extra);
    group.all_reduce(&mut sums)?;
    extra.copy_from_slice(&sums[n..]);
    sums.truncate(n);
    let Some(device) = device else { return Ok(()) };

    let size = group.size() as f32;
    sums.iter_mut().for_each(|sum| *sum /= size);
    let means = Tensor::<1>::from_data(TensorData::new(sums, [n]), &device);
    let mut begin = 0;
    for parameter in present {
        let end = begin + values(parameter);
        let mean = means.clone().narrow(0, begin, end - begin);
        begin = end;
        match parameter.shape[..] {
            [rows, columns] => gradients.register::<2>(parameter.id, mean.reshape([rows, columns])),
            _ => gradients.register::<1>(parameter.id, mean),
        }
    }
    Ok(())
}

/// Removes and returns a parameter's gradient, flattened.
fn take(gradients: &mut GradientsParams, parameter: &Parameter) -> Option<Tensor<1>> {
    match parameter.shape.len() {
        1 => gradients.remove::<1>(parameter.id),
        _ => gradients.remove::<2>(parameter.id).map(|gradient| gradient.reshape([values(parameter)])),
    }
}
