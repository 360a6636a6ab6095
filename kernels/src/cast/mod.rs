//! Values in another type of floats.

mod cpu;
#[cfg(feature = "gpu")]
mod gpu;

use burn::tensor::{DType, FloatDType, Tensor};

use crate::operation::apply;

/// `x` in another type, which it may already have.
pub fn cast<const D: usize>(x: Tensor<D>, to: FloatDType) -> Tensor<D> {
    if x.dtype() == DType::from(to) {
        return x;
    }
    let [y] = apply(Cast(to), [x.into_dispatch()]);
    Tensor::from_dispatch(y)
}

#[derive(Clone, Debug)]
struct Cast(FloatDType);
