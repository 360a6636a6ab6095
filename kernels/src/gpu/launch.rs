//! Launching kernels: [`launch!`] on a [`Grid`].

use burn_cubecl::tensor::CubeTensor;
use cubecl::{calculate_cube_count_elemwise, client::Client, prelude::*};

use crate::gpu::tensor::vector_size;

/// Units of a cube in kernels for which no other number is better; every supported device allows as
/// many.
pub const UNITS: u32 = 256;

/// The launch grid of a kernel: its device, the cubes, the units of each, and the integer type of
/// indices.
#[derive(Clone)]
pub struct Grid {
    pub client: Client,
    pub cubes: CubeCount,
    pub units: CubeDim,
    pub address: AddressType,
}

impl Grid {
    /// A grid of `cubes` of `units`, on the device of `tensors`, which must include the largest
    /// tensors of the kernel.
    pub fn new(tensors: &[&CubeTensor], cubes: CubeCount, units: CubeDim) -> Self {
        let address = tensors.iter().map(|tensor| tensor.required_address_type()).max().unwrap_or_default();
        Self { client: tensors[0].client.clone(), cubes, units, address }
    }

    /// One unit for each of `count` elements.
    pub fn each(tensors: &[&CubeTensor], count: usize) -> Self {
        let client = &tensors[0].client;
        let units = CubeDim::new_1d(UNITS.min(client.properties().hardware.max_units_per_cube));
        Self::new(tensors, calculate_cube_count_elemwise(client, count, units), units)
    }

    /// One unit for each vector of `x`, taken as one row; also the vector width, and the number of
    /// vectors.
    pub fn vectors(x: &CubeTensor) -> (Self, usize, usize) {
        let length = x.meta.num_elements();
        let vector = vector_size(length);
        (Self::each(&[x], length / vector), vector, length / vector)
    }

    /// `cubes` cubes of `units`, in as many grid dimensions as the device needs.
    pub fn cubes(tensors: &[&CubeTensor], cubes: usize, units: usize) -> Self {
        let cubes = calculate_cube_count_elemwise(&tensors[0].client, cubes, CubeDim::new_single());
        Self::new(tensors, cubes, CubeDim::new_1d(units as u32))
    }
}

/// A kernel argument that is a slice.
pub trait Slice {
    /// The buffer argument.
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

/// Launches a kernel: on a grid, with the vector width for kernels over vectors, the tensors `[a,
/// &b]` (`&` keeps one for later use), and the other arguments. The caller promises sizes that keep
/// the kernel inside its tensors; a `checked` kernel checks every index itself.
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
