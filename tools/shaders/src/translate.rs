//! Translates a kernel to SPIR-V, Metal's language and HLSL, and computes its resource needs.

use anyhow::{Context, Result, anyhow, ensure};
use naga::back::{hlsl, msl, spv};
use naga::proc::{GlobalCtx, Layouter};
use naga::valid::{Capabilities, ModuleInfo, ShaderStages, SubgroupOperationSet, ValidationFlags, Validator};
use naga::{AddressSpace, Module, ShaderStage};

/// The resources that a kernel needs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Needs {
    /// Bytes of shared memory per workgroup.
    pub shared: u32,
    /// Invocations (units) per workgroup.
    pub units: u32,
    /// Storage buffers.
    pub buffers: usize,
}

impl Needs {
    /// The maximum of each resource.
    pub fn max(self, other: Self) -> Self {
        Self {
            shared: self.shared.max(other.shared),
            units: self.units.max(other.units),
            buffers: self.buffers.max(other.buffers),
        }
    }
}

/// The kind of adapter for which the kernels were generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adapter {
    /// An adapter with the minimum of features.
    Least,
    /// A discrete GPU: with subgroups, larger workgroups and more buffers.
    Card,
}

/// Shared memory per workgroup in Metal ("Metal Feature Set Tables", all GPU families) and in
/// DirectX 12 (Direct3D 11.3 functional specification, 7.16).
const SHARED: u32 = 32 << 10;
/// Invocations per workgroup: 1,024 in both APIs; 512 in Metal's older families.
const UNITS: u32 = 512;
const UNITS_OF_CARDS: u32 = 1024;
/// Buffers: 31 in Metal; DirectX 12's smallest tier has 8 (tier 1, feature level 11.0).
const BUFFERS: usize = 8;
const BUFFERS_OF_CARDS: usize = 31;

/// The needs of the kernel in `source`, which was generated for `adapter`, and its SPIR-V.
///
/// # Errors
/// Names the language or the limit that refuses the kernel.
pub fn translate(source: &str, adapter: Adapter) -> Result<(Needs, Vec<u32>)> {
    let module = naga::front::wgsl::parse_str(source).map_err(|error| anyhow!("{}", error.emit_to_string(source)))?;
    // Optional features, such as 64-bit numbers and atomics on floats, are not allowed. Exceptions
    // are float16 and, on a card, subgroups: the program checks for them before it uses them.
    let (more, units, buffers) = match adapter {
        Adapter::Least => (Capabilities::empty(), UNITS, BUFFERS),
        Adapter::Card => (Capabilities::SUBGROUP, UNITS_OF_CARDS, BUFFERS_OF_CARDS),
    };
    let mut validator = Validator::new(ValidationFlags::all(), Capabilities::SHADER_FLOAT16 | more);
    validator.subgroup_stages(ShaderStages::COMPUTE).subgroup_operations(SubgroupOperationSet::all());
    let info = validator.validate(&module).context("not valid")?;
    let needs = needs(&module)?;
    ensure!(needs.shared <= SHARED, "{} bytes of shared memory", needs.shared);
    ensure!(needs.units <= units, "{} units", needs.units);
    ensure!(needs.buffers <= buffers, "{} buffers", needs.buffers);
    // SPIR-V 1.3: the version of Vulkan 1.1, which subgroups need.
    let spirv = spv::write_vec(&module, &info, &spv::Options { lang_version: (1, 3), ..Default::default() }, None);
    let spirv = spirv.context("SPIR-V")?;
    metal(&module, &info).context("Metal")?;
    hlsl(&module, &info).context("HLSL")?;
    Ok((needs, spirv))
}

fn needs(module: &Module) -> Result<Needs> {
    let mut layouter = Layouter::default();
    let context = GlobalCtx {
        types: &module.types,
        constants: &module.constants,
        overrides: &module.overrides,
        global_expressions: &module.global_expressions,
    };
    layouter.update(context).context("layout")?;
    let of = |space: fn(&AddressSpace) -> bool| module.global_variables.iter().filter(move |(_, it)| space(&it.space));
    let shared = of(|space| *space == AddressSpace::WorkGroup).map(|(_, it)| layouter[it.ty].size).sum();
    let buffers = of(|space| matches!(space, AddressSpace::Storage { .. })).count();
    let kernel = module.entry_points.iter().find(|entry| entry.stage == ShaderStage::Compute);
    let units = kernel.context("no kernel")?.workgroup_size.iter().product();
    Ok(Needs { shared, units, buffers })
}

fn metal(module: &Module, info: &ModuleInfo) -> Result<()> {
    let options = msl::Options { lang_version: (3, 0), fake_missing_bindings: true, ..Default::default() };
    msl::write_string(module, info, &options, &msl::PipelineOptions::default())?;
    Ok(())
}

fn hlsl(module: &Module, info: &ModuleInfo) -> Result<()> {
    // The first shader model with float16.
    let shader_model = hlsl::ShaderModel::V6_2;
    let options = hlsl::Options { shader_model, fake_missing_bindings: true, ..Default::default() };
    let mut text = String::new();
    let pipeline = hlsl::PipelineOptions::default();
    hlsl::Writer::new(&mut text, &options, &pipeline).write(module, info, None)?;
    Ok(())
}
