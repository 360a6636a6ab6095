//! NVIDIA instructions that CubeCL does not provide, inserted into kernels as inline assembly
//! ([PTX](https://docs.nvidia.com/cuda/parallel-thread-execution/)): asynchronous copies, and
//! products by the four planes of a warpgroup.
//!
//! For example, `exp2(x)` in a kernel registers the operation [`PtxOp`] with the text
//! `ex2.approx.ftz.f32 $0, $1;`, one result and the operand `x`. When the kernel is compiled,
//! [`ToLLVMDialect`] replaces it by LLVM's `asm "ex2.approx.ftz.f32 $0, $1;", "=f,f"(float %x)`. In
//! the PTX, LLVM has put registers in place of the numbers: `ex2.approx.ftz.f32 %f2, %f1;`.

use cubecl::ir::dialect::OperationPtrExt;
use cubecl::ir::interfaces::side_effects::{MemoryEffect, MemoryEffectsOp};
use cubecl::ir::prelude::{DialectConversionRewriter, OperandsInfo, Result as IrResult};
use cubecl::ir::{CanMaterialize, Scope};
use cubecl::prelude::*;
use cubecl_llvm::shared::to_llvm::{ToLLVMDialect, prelude as lowering};
use pliron::builtin::attributes::{StringAttr, UnitAttr};
use pliron::builtin::op_interfaces::OneResultInterface;
use pliron::context::Context;
use pliron::derive::{op_interface_impl, pliron_op};
use pliron::irbuild::inserter::Inserter;
use pliron::irbuild::rewriter::Rewriter;
use pliron::op::Op;
use pliron::operation::Operation;
use pliron::opts::dce::SideEffects;
use pliron::r#type::{TypeHandle, Typed};
use pliron::value::Value;
use pliron_llvm::types::{StructLayout, StructType};

/// Inline assembly. `$0` and up are the results, then the operands. LLVM's constraints describe
/// them in the same order: `f` is a float32, `r` and `l` are other values of 32 and of 64 bits, `=`
/// marks a result, a number is an operand in the register of that result, and `~{memory}` says that
/// memory is accessed.
///
/// | function | effect | text | constraints |
/// |---|---|---|---|
/// | `exp2` | `Pure` | `ex2.approx.ftz.f32 $0, $1;` | `=f,f` |
/// | `copy` | `Memory` | `cp.async.cg.shared.global [$0], [$1], 16, $2;` | `r,l,r,~{memory}` |
/// | `finished`, 2 sums | `Changes` | `wgmma.wait_group.sync.aligned 0;` | `=f,=f,0,1,~{memory}` |
#[pliron_op(
    name = "ember.ptx",
    format,
    attributes = (ember_ptx_text: StringAttr, ember_ptx_kept: UnitAttr, ember_ptx_pure: UnitAttr),
    verifier = "succ"
)]
pub struct PtxOp;

CanMaterialize!(PtxOp);

/// The side effects of instructions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// None: the results depend only on the operands.
    Pure,
    /// They access memory, or wait.
    Memory,
    /// As [`Self::Memory`], and the results overwrite the first operands in their registers, which
    /// the text may therefore name by the results alone.
    Changes,
}

impl PtxOp {
    fn new(ctx: &mut Context, effect: Effect, text: &str, results: Vec<TypeHandle>, operands: Vec<Value>) -> Self {
        let op = Self { op: Operation::new(ctx, Self::get_concrete_op_info(), results, operands, vec![], 0) };
        op.set_attr_ember_ptx_text(ctx, StringAttr::new(text.to_owned()));
        match effect {
            Effect::Pure => op.set_attr_ember_ptx_pure(ctx, UnitAttr::new()),
            Effect::Memory => {}
            Effect::Changes => op.set_attr_ember_ptx_kept(ctx, UnitAttr::new()),
        }
        op
    }

    fn is_pure(&self, ctx: &Context) -> bool {
        self.get_attr_ember_ptx_pure(ctx).is_some()
    }
}

#[op_interface_impl]
impl SideEffects for PtxOp {
    fn has_side_effects(&self, ctx: &Context) -> bool {
        !self.is_pure(ctx)
    }
}

#[op_interface_impl]
impl MemoryEffectsOp for PtxOp {
    fn memory_effects(&self, ctx: &Context) -> Vec<MemoryEffect> {
        if self.is_pure(ctx) { vec![] } else { vec![MemoryEffect::ReadAll, MemoryEffect::WriteAll] }
    }
}

/// The inline-assembly constraint for a value of this LLVM type.
fn register(ctx: &Context, ty: TypeHandle) -> &'static str {
    let ty = ty.deref(ctx);
    match ty.downcast_ref::<lowering::IntegerType>() {
        Some(integer) if integer.width() == 32 => "r",
        None if ty.is::<lowering::FP32Type>() => "f",
        _ => "l",
    }
}

#[op_interface_impl]
impl ToLLVMDialect for PtxOp {
    fn rewrite(&self, ctx: &mut Context, rewriter: &mut DialectConversionRewriter, _: &OperandsInfo) -> IrResult<()> {
        let op = self.get_operation();
        let operands = op.operands(ctx);
        let results: Vec<TypeHandle> =
            op.results(ctx).iter().map(|result| lowering::cube_type_to_llvm(ctx, result.get_type(ctx))).collect();
        let text = self.get_attr_ember_ptx_text(ctx).map(|text| text.as_str().to_owned()).unwrap_or_default();
        let kept = self.get_attr_ember_ptx_kept(ctx).is_some();
        let written = results.iter().map(|ty| format!("={}", register(ctx, *ty)));
        let read = operands.iter().enumerate().map(|(i, operand)| match kept && i < results.len() {
            true => i.to_string(),
            false => register(ctx, operand.get_type(ctx)).to_owned(),
        });
        let clobbers = (!self.is_pure(ctx)).then(|| "~{memory}".to_owned());
        let constraints: Vec<String> = written.chain(read).chain(clobbers).collect();
        let ty = match results[..] {
            [] => lowering::VoidType::get(ctx).into(),
            [one] => one,
            _ => StructType::get_unnamed(ctx, (results.clone(), StructLayout::Unpacked)).into(),
        };
        let constraints = constraints.join(",");
        let asm = lowering::llvm::InlineAsmOp::new(ctx, ty, operands, &text, &constraints, !self.is_pure(ctx));
        rewriter.insert_op(ctx, &asm);
        let value = asm.get_result(ctx);
        match results.len() {
            0 => rewriter.erase_operation(ctx, op),
            1 => rewriter.replace_operation_with_values(ctx, op, vec![value]),
            count => {
                let mut values = Vec::with_capacity(count);
                for field in 0..count as u32 {
                    let extract = lowering::llvm::ExtractValueOp::new(ctx, value, vec![field])?;
                    rewriter.insert_op(ctx, &extract);
                    values.push(extract.get_result(ctx));
                }
                rewriter.replace_operation_with_values(ctx, op, values);
            }
        }
        Ok(())
    }
}

/// Inserts instructions into a kernel, and returns their results.
fn put(scope: &Scope, effect: Effect, text: &str, results: Vec<TypeHandle>, operands: Vec<Value>) -> Vec<Value> {
    let op = PtxOp::new(scope.ctx_mut(), effect, text, results, operands);
    scope.register(&op);
    op.get_operation().results(scope.ctx())
}

/// The values of the first `count` of a sequence.
fn values<T: CubePrimitive>(scope: &Scope, sequence: &SequenceExpand<T>, count: usize) -> Vec<Value> {
    (0..count).map(|i| sequence.__expand_index_method(scope, i.into()).read_value(scope)).collect()
}

/// Values as a sequence.
fn sequence(scope: &Scope, values: Vec<Value>) -> SequenceExpand<f32> {
    let mut sequence = Sequence::<f32>::__expand_new(scope);
    for value in values {
        sequence.__expand_push_method(scope, value.into());
    }
    sequence
}

/// The address of a slice in shared memory.
#[cube]
pub fn shared_address<E: CubePrimitive>(slice: &[E]) -> u32 {
    intrinsic!(|scope| {
        // SAFETY: only the pointer's address is used.
        let pointer = unsafe { *slice.__expand_as_ptr_method(scope) }.value(scope);
        let text = "{ .reg .b64 at; cvta.to.shared.u64 at, $1; cvt.u32.u64 $0, at; }";
        put(scope, Effect::Memory, text, vec![u32::__expand_as_type(scope)], vec![pointer])[0].into()
    })
}

/// Starts an asynchronous copy of the first `bytes` of a slice, at most 16, to address `to` in
/// shared memory, with zeros up to 16 bytes. Both addresses are multiples of 16.
#[cube]
pub fn copy<E: CubePrimitive>(from: &[E], to: u32, bytes: u32) {
    intrinsic!(|scope| {
        // SAFETY: the slice is a kernel's input, which no one writes.
        let from = unsafe { *from.__expand_as_ptr_method(scope) }.value(scope);
        let operands = vec![to.read_value(scope), from, bytes.read_value(scope)];
        put(scope, Effect::Memory, "cp.async.cg.shared.global [$0], [$1], 16, $2;", vec![], operands);
    })
}

/// Closes a group of this unit's asynchronous copies.
#[cube]
pub fn end_copies() {
    intrinsic!(|scope| {
        put(scope, Effect::Memory, "cp.async.commit_group;", vec![], vec![]);
    })
}

/// Waits until at most the last `pending` groups of this unit's copies are unfinished, and makes
/// the finished ones visible to the tensor cores.
#[cube]
pub fn wait_for_copies(#[comptime] pending: usize) {
    intrinsic!(|scope| {
        let text = format!("cp.async.wait_group {pending};\n\tfence.proxy.async.shared::cta;");
        put(scope, Effect::Memory, &text, vec![], vec![]);
    })
}

/// The type of factors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Half {
    F16,
    BF16,
}

impl Half {
    /// Its name in PTX.
    const fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::BF16 => "bf16",
        }
    }
}

/// Where factor A of a product is, as operands of the instructions.
#[derive(Clone, Copy)]
enum FactorA {
    /// In shared memory; this operand is its descriptor.
    Shared(usize),
    /// In registers: the operands from this one on, four for each 16 of the depth.
    Registers(usize),
}

/// A warpgroup product of 64 rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Product {
    /// Columns; each unit has half as many accumulators.
    pub columns: usize,
    /// The factors' type.
    pub half: Half,
    /// Whether a row of each factor in shared memory goes across the depth, not along it.
    pub across: [bool; 2],
    /// Step in each factor from 16 numbers of the depth to the next 16, in units of 16 bytes.
    pub steps: [usize; 2],
    /// Number of such steps.
    pub count: usize,
}

impl Product {
    /// Accumulators of a unit.
    pub const fn sums(self) -> usize {
        self.columns / 2
    }

    /// The PTX instructions. The sums are the first operands, factor A is `a`, and operand `b` is
    /// the descriptor of factor B. If `fresh`, the sums start from zero. `then` is the last
    /// instruction.
    ///
    /// For example, `begin_multiply` with 8 columns, so 4 sums in a unit (`$0` to `$3`, given as
    /// `$4` to `$7`), factors of bfloat16 that lie along the depth, and a depth of 32, two steps of
    /// 16:
    ///
    /// ```text
    /// .reg .pred on;
    /// .reg .b64 a, b;
    /// mov.b64 a, $8;                   the descriptors
    /// mov.b64 b, $9;
    /// wgmma.fence.sync.aligned;
    /// setp.ne.b32 on, 1, 0;            true: add to the sums; false in the first step if `fresh`
    /// wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {$0, $1, $2, $3}, a, b, on, 1, 1, 0, 0;
    /// add.s64 a, a, 2;                 16 numbers on: 32 bytes, in units of 16
    /// add.s64 b, b, 2;
    /// setp.ne.b32 on, 1, 0;
    /// wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {$0, $1, $2, $3}, a, b, on, 1, 1, 0, 0;
    /// wgmma.commit_group.sync.aligned;
    /// ```
    ///
    /// The last numbers of a product are the signs of its factors, always positive, then `across`:
    /// for both, or for B alone if A is in registers, for example `{$8, $9, $10, $11}`.
    fn text(self, fresh: bool, a: FactorA, b: usize, then: &str) -> String {
        let (sums, columns, name) = (operands(0, self.sums()), self.columns, self.half.name());
        let [across_a, across_b] = self.across.map(u8::from);
        let [step_a, step_b] = self.steps;
        let (first_a, next_a) = match a {
            FactorA::Shared(a) => (format!("mov.b64 a, ${a};\n\t"), format!("add.s64 a, a, {step_a};\n\t")),
            FactorA::Registers(_) => Default::default(),
        };
        let mut text = format!(
            "{{\n\t.reg .pred on;\n\t.reg .b64 a, b;\n\t{first_a}mov.b64 b, ${b};\n\twgmma.fence.sync.aligned;\n\t"
        );
        for i in 0..self.count {
            if i > 0 {
                text += &format!("{next_a}add.s64 b, b, {step_b};\n\t");
            }
            let on = u8::from(!(fresh && i == 0));
            let (a, across) = match a {
                FactorA::Shared(_) => ("a".to_owned(), format!("{across_a}, {across_b}")),
                FactorA::Registers(first) => (operands(first + 4 * i, 4), across_b.to_string()),
            };
            text += &format!(
                "setp.ne.b32 on, {on}, 0;\n\twgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{name}.{name} {sums}, {a}, b, on, 1, 1, {across};\n\t"
            );
        }
        text + "wgmma.commit_group.sync.aligned;\n\t" + then + "}"
    }
}

/// A list of operands, such as `{$8, $9}`.
fn operands(first: usize, count: usize) -> String {
    let named: Vec<String> = (first..first + count).map(|i| format!("${i}")).collect();
    format!("{{{}}}", named.join(", "))
}

/// Waits until all products have finished.
const WAIT: &str = "wgmma.wait_group.sync.aligned 0;";

/// Starts `sums += a b`, where `a` and `b` are descriptors of slices in shared memory.
#[cube]
pub fn begin_multiply(sums: &Sequence<f32>, a: u64, b: u64, #[comptime] product: Product) -> Sequence<f32> {
    intrinsic!(|scope| {
        let count = product.sums();
        let text = product.text(false, FactorA::Shared(2 * count), 2 * count + 1, "");
        let mut operands = values(scope, sums, count);
        operands.extend([a.read_value(scope), b.read_value(scope)]);
        let types = vec![f32::__expand_as_type(scope); count];
        sequence(scope, put(scope, Effect::Changes, &text, types, operands))
    })
}

/// Waits until all of this warpgroup's [`begin_multiply`] calls except the last have finished.
#[cube]
pub fn wait_for_products_but_the_last() {
    intrinsic!(|scope| {
        put(scope, Effect::Memory, "wgmma.wait_group.sync.aligned 1;", vec![], vec![]);
    })
}

/// The sums of [`begin_multiply`], `count` in a unit, once all have finished.
#[cube]
pub fn finished(sums: &Sequence<f32>, #[comptime] count: usize) -> Sequence<f32> {
    intrinsic!(|scope| {
        let types = vec![f32::__expand_as_type(scope); count];
        let operands = values(scope, sums, count);
        sequence(scope, put(scope, Effect::Changes, WAIT, types, operands))
    })
}

/// `a b`, where both are descriptors of slices in shared memory.
#[cube]
pub fn multiply(a: u64, b: u64, #[comptime] product: Product) -> Sequence<f32> {
    intrinsic!(|scope| {
        let count = product.sums();
        let text = product.text(true, FactorA::Shared(count), count + 1, WAIT);
        let types = vec![f32::__expand_as_type(scope); count];
        sequence(scope, put(scope, Effect::Memory, &text, types, vec![a.read_value(scope), b.read_value(scope)]))
    })
}

/// `sums + a b`, where `a` is in registers, two numbers in each and four registers per 16 of the
/// depth, and `b` is the descriptor of a slice in shared memory.
#[cube]
pub fn multiply_registers(
    sums: &Sequence<f32>,
    a: &Sequence<u32>,
    b: u64,
    #[comptime] product: Product,
) -> Sequence<f32> {
    intrinsic!(|scope| {
        let (count, registers) = (product.sums(), 4 * product.count);
        let text = product.text(false, FactorA::Registers(2 * count), 2 * count + registers, WAIT);
        let mut operands = values(scope, sums, count);
        operands.extend(values(scope, a, registers));
        operands.push(b.read_value(scope));
        let types = vec![f32::__expand_as_type(scope); count];
        sequence(scope, put(scope, Effect::Changes, &text, types, operands))
    })
}

/// Two numbers rounded to a half type, the first in the lower half.
#[cube]
pub fn packed(low: f32, high: f32, #[comptime] half: Half) -> u32 {
    intrinsic!(|scope| {
        let operands = vec![high.read_value(scope), low.read_value(scope)];
        let text = format!("cvt.rn.{}x2.f32 $0, $1, $2;", half.name());
        put(scope, Effect::Pure, &text, vec![u32::__expand_as_type(scope)], operands)[0].into()
    })
}

/// `2^x`, to some 22 bits.
#[cube]
pub fn exp2(x: f32) -> f32 {
    intrinsic!(|scope| {
        let text = "ex2.approx.ftz.f32 $0, $1;";
        let operands = vec![x.read_value(scope)];
        put(scope, Effect::Pure, text, vec![f32::__expand_as_type(scope)], operands)[0].into()
    })
}
