//! The one way to launch a kernel: [`launch!`] on a [`Grid`].

use burn_cubecl::tensor::CubeTensor;
use cubecl::{calculate_cube_count_elemwise, client::Client, prelude::*};

use crate::gpu::tensor::vector_size;

/// Units of the cubes of those kernels that take each value by itself.
const UNITS: u32 = 256;

/// Where a kernel runs: the cubes and the units of each, and the width of the numbers that tell
/// places apart.
#[derive(Clone)]
pub struct Grid {
    pub client: Client,
    pub cubes: CubeCount,
    pub units: CubeDim,
    pub address: AddressType,
}

impl Grid {
    /// These cubes of so many units, on the device of `tensors`, among which are the largest that
    /// the kernel sees.
    pub fn new(tensors: &[&CubeTensor], cubes: CubeCount, units: CubeDim) -> Self {
        let address = tensors.iter().map(|tensor| tensor.required_address_type()).max().unwrap_or_default();
        Self { client: tensors[0].client.clone(), cubes, units, address }
    }

    /// One unit for each of `count` places.
    pub fn each(tensors: &[&CubeTensor], count: usize) -> Self {
        let client = &tensors[0].client;
        let units = CubeDim::new_1d(UNITS.min(client.properties().hardware.max_units_per_cube));
        Self::new(tensors, calculate_cube_count_elemwise(client, count, units), units)
    }

    /// One unit for each vector of `x`, whose values are all one row; with the numbers in a vector,
    /// and how many there are.
    pub fn vectors(x: &CubeTensor) -> (Self, usize, usize) {
        let length = x.meta.num_elements();
        let vector = vector_size(length);
        (Self::each(&[x], length / vector), vector, length / vector)
    }

    /// So many cubes of `units`, in as many dimensions as the device needs for them.
    pub fn cubes(tensors: &[&CubeTensor], cubes: usize, units: usize) -> Self {
        let cubes = calculate_cube_count_elemwise(&tensors[0].client, cubes, CubeDim::new_single());
        Self::new(tensors, cubes, CubeDim::new_1d(units as u32))
    }
}

/// What a kernel takes as a slice.
pub trait Slice {
    /// As its argument.
    fn argument(self) -> BufferArg;
}

impl Slice for BufferArg {
    fn argument(self) -> BufferArg {
        self
    }
}

impl Slice for CubeTensor {
    fn argument(self) -> BufferArg {
        self.into_buffer_arg()
    }
}

impl Slice for &CubeTensor {
    fn argument(self) -> BufferArg {
        self.clone().into_buffer_arg()
    }
}

/// Launches a kernel, which its caller promises to give the sizes that it reads and writes within:
/// on a grid, for kernels of vectors the numbers in one, the tensors that it takes `[a, &b]`, of
/// which those with `&` are needed afterwards, and what else it takes. One that is `checked` looks
/// at every place before it reads or writes it.
macro_rules! launch {
    (checked $kernel:ident, $($rest:tt)*) => { $crate::gpu::launch::launch!(@ $kernel::launch, $($rest)*) };
    (@ $launch:path, $grid:expr, $($vector:ident,)? [$($slice:expr),*] $(, $argument:expr)* $(,)?) => {{
        let grid = $grid;
        $launch(
            &grid.client, grid.cubes, grid.units, grid.address, $($vector,)?
            $($crate::gpu::launch::Slice::argument($slice),)* $($argument),*
        )
    }};
    ($kernel:ident $(::<$family:ty>)?, $($rest:tt)*) => {
        $crate::gpu::launch::launch!(@ $kernel::launch_unchecked $(::<$family>)?, $($rest)*)
    };
}
pub(crate) use launch;
