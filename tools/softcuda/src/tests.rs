//! Small kernels, each with one effect that must be right, or one fault that must be detected.

use crate::{
    block::Launch,
    conversion::converted,
    execute::run,
    half::half,
    lanes::Outcome,
    memory,
    number::*,
    parse::parse,
    profile::Counts,
    ptx::{Arithmetic, Round, Ty},
};

/// Runs a kernel's body on `threads` threads with one buffer of `values`, which is returned, and
/// with a word of shared memory for each thread.
fn run_body(body: &str, threads: u32, values: &[u32]) -> Outcome<(Vec<u32>, Counts)> {
    run_sharing(body, threads, 4 * threads as usize, values)
}

fn run_sharing(body: &str, threads: u32, shared: usize, values: &[u32]) -> Outcome<(Vec<u32>, Counts)> {
    let text = format!(
        ".version 9.0\n.target sm_90a\n.address_size 64\n.extern .shared .align 1024 .b8 room[];\n\
         .visible .entry k(\n\t.param .u64 .ptr .global .align 4 k_param_0\n)\n.reqntid {threads}, 1, 1\n{{\n\
         .reg .pred %p<9>;\n.reg .b32 %r<19>;\n.reg .b64 %rd<10>;\n\
         ld.param.b64 %rd1, [k_param_0];\nmov.u32 %r1, %tid.x;\nmul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd3, %rd1, %rd2;\n\
         mov.b64 %rd4, room;\nadd.s64 %rd5, %rd4, %rd2;\n{body}\n}}\n"
    );
    let module = parse(&text).unwrap();
    let bytes = 4 * values.len();
    let at = memory::allocate(bytes as u64).unwrap();
    let there = unsafe { std::slice::from_raw_parts_mut(at as *mut u32, values.len()) };
    there.copy_from_slice(values);
    let launch = Launch {
        kernel: &module.kernels[0],
        params: at.to_le_bytes().to_vec(),
        grid: (1, 1, 1),
        block: (threads, 1, 1),
        shared: module.kernels[0].shared + shared,
        ranges: memory::ranges(),
        check_races: true,
        profile: true,
        sample: None,
        globals: &[],
    };
    let counts = run(&launch);
    let values = there.to_vec();
    assert!(memory::free(at));
    counts.map(|counts| (values, counts))
}

#[test]
fn lanes_meet_again_after_a_branch_and_after_a_loop() {
    // Thread i loops i % 5 times; odd ones add 100. Then all lanes of the warp vote, which needs
    // them reconverged.
    let body = "rem.u32 %r2, %r1, 5;\nmov.b32 %r3, 0;\nsetp.eq.b32 %p1, %r2, 0;\n@%p1 bra DONE;\n\
        ROUND:\nadd.s32 %r3, %r3, 1;\nsetp.lt.u32 %p2, %r3, %r2;\n@%p2 bra ROUND;\n\
        DONE:\nand.b32 %r4, %r1, 1;\nsetp.ne.b32 %p3, %r4, 0;\n@%p3 bra ODD;\nbra.uni BOTH;\n\
        ODD:\nadd.s32 %r3, %r3, 100;\n\
        BOTH:\nvote.sync.ballot.b32 %r5, %p3, -1;\nadd.s32 %r3, %r3, %r5;\nst.global.b32 [%rd3], %r3;\nret;";
    let (values, counts) = run_body(body, 32, &[0; 32]).unwrap();
    for (i, value) in (0u32..).zip(values) {
        assert_eq!(value, (i % 5 + 100 * (i % 2)).wrapping_add(0xaaaa_aaaa));
    }
    assert!(counts.divergent > 0);
}

#[test]
fn warps_exchange_by_shared_memory_across_a_barrier() {
    let write = "ld.global.b32 %r2, [%rd3];\nst.shared.b32 [%rd5], %r2;\n";
    let read = "xor.b32 %r3, %r1, 63;\nmul.wide.u32 %rd6, %r3, 4;\nadd.s64 %rd7, %rd4, %rd6;\nld.shared.b32 %r4, [%rd7];\n\
        st.global.b32 [%rd3], %r4;\nret;";
    let values: Vec<u32> = (0..64).map(|i| i * i).collect();
    let reversed: Vec<u32> = values.iter().rev().copied().collect();
    let (got, counts) = run_body(&format!("{write}bar.sync 0;\n{read}"), 64, &values).unwrap();
    assert_eq!((got, counts.races.between_warps), (reversed, 0));
    // Each sector of global memory once, each bank once.
    assert_eq!((counts.sectors, counts.rounds), (counts.min_sectors, counts.min_rounds));
    let (_, counts) = run_body(&format!("{write}{read}"), 64, &values).unwrap();
    assert!(counts.races.between_warps > 0);
}

#[test]
fn what_a_gpu_would_not_do_is_an_error() {
    let fails = |body: &str| run_body(body, 32, &[0; 32]).err().unwrap();
    assert!(fails("st.global.b32 [%rd3+128], %r1;\nret;").contains("not allocated"));
    assert!(fails("st.global.b32 [%rd3+2], %r1;\nret;").contains("not a multiple of 4"));
    assert!(fails("st.shared.b32 [%rd5+4], %r1;\nret;").contains("of shared memory"));
    let half = "setp.lt.u32 %p1, %r1, 16;\n@%p1 bra HERE;\nret;\nHERE:\n";
    assert!(fails(&format!("{half}shfl.sync.idx.b32 %r2, %r1, 20, 31, -1;\nret;")).contains("are not here"));
    let early = "setp.lt.u32 %p1, %r1, 16;\n@%p1 bra HERE;\nbar.sync 0;\nHERE:\nret;";
    assert!(fails(early).contains("are elsewhere"));
    assert!(fails("invented.b32 %r1, %r2;\nret;").contains("is not known"));
}

#[test]
fn halves_round_to_nearest_even() {
    for bits in 0..=u16::MAX {
        for (value, back) in [(from_f16(bits), to_f16(from_f16(bits))), (from_bf16(bits), to_bf16(from_bf16(bits)))] {
            assert!(back == bits || value.is_nan());
        }
    }
    assert_eq!([1.0 + 2f32.powi(-8), 1.0 + 3.0 * 2f32.powi(-8)].map(to_bf16), [0x3f80, 0x3f82]);
    assert_eq!(
        [1.0 + 2f32.powi(-11), 1.0 + 3.0 * 2f32.powi(-11), 65520.0, 2f32.powi(-25)].map(to_f16),
        [0x3c00, 0x3c02, 0x7c00, 0]
    );
}

/// A number just beside the middle between two halves: float32 rounds it to the middle, from which
/// it would go to the even one.
#[test]
fn what_is_narrowed_to_a_half_is_rounded_once() {
    let narrowed = |to, value: f64| converted(to, Ty::F64, Round::Nearest, false, value.to_bits());
    let tiny = 2f64.powi(-40);
    for (to, last_bit, one) in [(Ty::F16, 2f64.powi(-10), 0x3c00), (Ty::BF16, 2f64.powi(-7), 0x3f80)] {
        let middles = [1.0 + 0.5 * last_bit, 1.0 + 1.5 * last_bit];
        assert_eq!(middles.map(|middle| narrowed(to, middle)), [one, one + 2]);
        assert_eq!(middles.map(|middle| narrowed(to, middle - tiny)), [one, one + 1]);
        assert_eq!(middles.map(|middle| narrowed(to, middle + tiny)), [one + 1, one + 2]);
    }
    assert_eq!([1e300, -1e300, 1e-300, -0.0].map(|value| narrowed(Ty::F16, value)), [0x7c00, 0xfc00, 0, 0x8000]);
    assert_eq!([1e300, -1e300, 1e-300, -0.0].map(|value| narrowed(Ty::BF16, value)), [0x7f80, 0xff80, 0, 0x8000]);
    // Also where float64 does not hold the number.
    let fused = |v: [f32; 3]| half(Arithmetic::Fma, Ty::BF16, &v).unwrap();
    for tiny in [-30, -60, -120].map(|exponent| 2f32.powi(exponent)) {
        assert_eq!([1f32, -1.0].map(|sign| fused([sign * 1.0625, 1.0625, sign * tiny])), [0x3f91, 0xbf91]);
        assert_eq!([1f32, -1.0].map(|sign| fused([sign * 7.0, 37.0, -sign * tiny])), [0x4381, 0xc381]);
    }
    assert_eq!([fused([1.0625, 1.0625, 0.0]), fused([7.0, 37.0, 0.0])], [0x3f90, 0x4382]);
    let whole = |from, bits| converted(Ty::BF16, from, Round::Nearest, false, bits);
    assert_eq!(whole(Ty::U32, (1 << 30) + (1 << 22) + 1), 0x4e81);
    let middles = [(1u64 << 62) + (1 << 54), (1 << 62) + (3 << 54)];
    for from in [Ty::U64, Ty::S64] {
        assert_eq!(middles.map(|middle| whole(from, middle)), [0x5e80, 0x5e82]);
        assert_eq!(middles.map(|middle| whole(from, middle - 1)), [0x5e80, 0x5e81]);
        assert_eq!(middles.map(|middle| whole(from, middle + 1)), [0x5e81, 0x5e82]);
    }
    assert_eq!(middles.map(|middle| whole(Ty::S64, (middle + 1).wrapping_neg())), [0xde81, 0xde82]);
}

#[test]
fn braces_hold_names_of_their_own() {
    let add = |number: u32, ty: &str| {
        format!(
            "// begin inline asm\n{{\n.reg .pred p;\n.reg .{ty} t;\nsetp.ne.b32 p, {number}, 0;\n\
             {{ .reg .b32 p; mov.u32 p, {number}; cvt.u64.u32 %rd6, p; mov.{ty} t, {number}; }}\n@!p bra SKIP;\n\
             add.s32 %r3, %r3, {number};\nSKIP:\n}}\n// end inline asm\n"
        )
    };
    let body = format!(
        "mov.u32 %r3, 1000;\n{}{}{}cvt.u32.u64 %r4, %rd6;\nadd.s32 %r3, %r3, %r4;\nst.global.b32 [%rd3], %r3;\nret;",
        add(20, "b64"),
        add(0, "b32"),
        add(3, "b64")
    );
    assert_eq!(run_body(&body, 32, &[0; 32]).unwrap().0, [1026; 32]);
    assert!(parse(".entry k()\n{\n{ .reg .b32 t; }\nmov.b32 t, 1;\nret;\n}").is_err());
}

#[test]
fn dynamic_shared_memory_begins_aligned_after_all_other() {
    let body = ".shared .align 4 .b8 own[40];\nmov.b64 %rd6, own;\ncvta.shared.u64 %rd7, %rd4;\n\
        cvta.to.shared.u64 %rd8, %rd7;\ncvt.u32.u64 %r2, %rd6;\ncvt.u32.u64 %r3, %rd8;\n\
        shl.b64 %rd6, %rd8, 20;\nor.b64 %rd6, %rd6, 5;\nmov.b64 {%r4, %r5}, %rd6;\nst.shared.b32 [%rd5], %r4;\n\
        st.global.v4.b32 [%rd1], {%r2, %r3, %r4, %r5};\nret;";
    let (values, _) = run_sharing(body, 1, 227 * 1024, &[7; 4]).unwrap();
    assert_eq!(values, [0, 1024, 1 << 30 | 5, 0]);
}

#[test]
fn the_first_of_two_numbers_packed_is_the_upper() {
    let body = |ty: &str| {
        format!(
            "mov.b32 %r2, 0f3F800000;\nmov.b32 %r3, 0fC0000000;\ncvt.rn.{ty}.f32 %r4, %r2, %r3;\n\
             st.global.b32 [%rd3], %r4;\nret;"
        )
    };
    assert_eq!(run_body(&body("bf16x2"), 1, &[0]).unwrap().0, [0x3f80_c000]);
    assert_eq!(run_body(&body("f16x2"), 1, &[0]).unwrap().0, [0x3c00_c000]);
}

/// Thread i copies i % 17 of its 16 bytes to shared memory; for 0 its source is invalid.
fn copy_and_read(between: &str) -> (Vec<u32>, Counts) {
    let body = format!(
        "mul.wide.u32 %rd2, %r1, 16;\nadd.s64 %rd3, %rd1, %rd2;\nadd.s64 %rd5, %rd4, %rd2;\n\
         cvta.shared.u64 %rd6, %rd5;\ncvta.to.shared.u64 %rd6, %rd6;\ncvt.u32.u64 %r2, %rd6;\n\
         rem.u32 %r3, %r1, 17;\nsetp.eq.u32 %p1, %r3, 0;\nselp.b64 %rd7, 16, %rd3, %p1;\n\
         cp.async.cg.shared.global [%r2], [%rd7], 16, %r3;\n{between}\n\
         ld.shared.v4.b32 {{%r4, %r5, %r6, %r7}}, [%rd5];\nst.global.v4.b32 [%rd3], {{%r4, %r5, %r6, %r7}};\nret;"
    );
    run_sharing(&body, 64, 1024, &[0x1234_5678; 256]).unwrap()
}

#[test]
fn asynchronous_copies_arrive_when_waited_for_and_end_in_zeros() {
    let expected: Vec<u8> =
        (0..1024usize).map(|i| if i % 16 < i / 16 % 17 { [0x78, 0x56, 0x34, 0x12][i % 4] } else { 0 }).collect();
    let commit = "cp.async.commit_group;\n";
    for wait in ["cp.async.wait_all;", "cp.async.commit_group;\ncp.async.wait_group 0;"] {
        let (values, counts) = copy_and_read(wait);
        assert_eq!(values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>(), expected);
        assert_eq!((counts.races.between_warps, counts.races.unfinished), (0, 0));
    }
    let early = |between: &str| {
        let (values, counts) = copy_and_read(between);
        assert!(values.iter().all(|v| *v == u32::MAX));
        assert!(counts.races.unfinished > 0);
    };
    early("");
    early("cp.async.wait_group 0;");
    early(&format!("{commit}cp.async.wait_group 1;"));
    // A newer group may still be pending when the older one must be complete.
    let (values, _) = copy_and_read(&format!("{commit}{commit}cp.async.wait_group 1;"));
    assert_eq!(values[255], 0);
}

/// Rows of A, columns of B, and the depth of the tiles of which a product takes a part.
const M: usize = 64;
const N: usize = 72;
const TILE_DEPTH: usize = 64;
const A_BYTES: usize = 8192;
/// Two blocks of 64 columns by 64 depths.
const B_BYTES: usize = 16384;
/// A thread's registers for its part of A.
const FRAGMENT: usize = 4;

/// Small whole numbers, so that sums are exact.
fn factor_a(row: usize, depth: usize) -> f32 {
    ((row * 7 + depth * 3) % 11) as f32 - 5.0
}

fn factor_b(column: usize, depth: usize) -> f32 {
    ((column * 5 + depth * 2) % 13) as f32 - 6.0
}

/// A tile in its shared memory layout: its start, stride and leading offset are 0 (or where A
/// ends), 1024 and 8192 bytes.
fn tile(
    bytes: usize,
    rows: usize,
    transposed: bool,
    encode: impl Fn(f32) -> u16,
    of: impl Fn(usize, usize) -> f32,
) -> Vec<u8> {
    let mut tile = vec![0; bytes];
    for (row, depth) in (0..rows).flat_map(|row| (0..TILE_DEPTH).map(move |depth| (row, depth))) {
        let (line, at) = if transposed { (row / 64 * 64 + depth, row % 64) } else { (row, depth) };
        // Each line of 128 bytes has its own order of its eight 16-byte pieces (swizzle).
        let place = line * 128 + ((at / 8) ^ (line % 8)) * 16 + at % 8 * 2;
        tile[place..place + 2].copy_from_slice(&encode(of(row, depth)).to_le_bytes());
    }
    tile
}

struct Product {
    bf16: bool,
    transposed: [bool; 2],
    accumulate: bool,
    sign: i32,
    /// Whether the left factor is in registers.
    in_registers: bool,
}

/// Old sums, each with its thread's number.
fn old_sum(warp: usize, lane: usize) -> f32 {
    (32 * warp + lane) as f32
}

/// A kernel whose 128 threads fill shared memory by plain stores and multiply depths 16 to 31.
fn product_body(product: &Product, fence: &str, wait: &str) -> String {
    let (words, given) = ((A_BYTES + B_BYTES) / 4, product.in_registers);
    let fragments = if given { 128 * FRAGMENT } else { 0 };
    let registers: Vec<String> = (0..N / 2).map(|i| format!("%f{i}")).collect();
    let olds: String = registers.iter().map(|f| format!("cvt.rn.f32.u32 {f}, %r1;\n")).collect();
    let results: String = registers
        .iter()
        .enumerate()
        .map(|(i, f)| format!("st.global.b32 [%rd7+{}], {f};\n", 4 * (words + fragments + i)))
        .collect();
    let fragment: String = (0..if given { FRAGMENT } else { 0 })
        .map(|i| format!("ld.global.b32 %r{}, [%rd9+{}];\n", 5 + i, 4 * (words + i)))
        .collect();
    // 16 depths further: 32 bytes within a line, or two groups of eight lines.
    let descriptor = |start: usize, transposed: bool| {
        let start = start + if transposed { 2048 } else { 32 };
        (start as u64 >> 4) | (8192 >> 4) << 16 | (1024 >> 4) << 32 | 1 << 62
    };
    let Product { bf16, transposed: [ta, tb], accumulate, sign, .. } = *product;
    let (left, layout) =
        if given { ("{%r5, %r6, %r7, %r8}", String::new()) } else { ("%rd6", format!("{}, ", ta as u32)) };
    let ty = if bf16 { "bf16" } else { "f16" };
    format!(
        ".reg .b32 %f<{}>;\n{olds}mov.u32 %r2, %r1;\n\
         FILL:\nmul.wide.u32 %rd6, %r2, 4;\nadd.s64 %rd7, %rd1, %rd6;\nadd.s64 %rd8, %rd4, %rd6;\n\
         ld.global.b32 %r3, [%rd7];\nst.shared.b32 [%rd8], %r3;\nadd.u32 %r2, %r2, 128;\n\
         setp.lt.u32 %p1, %r2, {words};\n@%p1 bra FILL;\n\
         mul.wide.u32 %rd6, %r1, {};\nadd.s64 %rd9, %rd1, %rd6;\n{fragment}\
         {fence}\nbar.sync 0;\nmov.b64 %rd6, {};\nmov.b64 %rd7, {};\nmov.u32 %r4, {};\n\
         // begin inline asm\nwgmma.fence.sync.aligned;\n// end inline asm\n\
         // begin inline asm\n{{\n.reg .pred p;\nsetp.ne.b32 p, %r4, 0;\n\
         wgmma.mma_async.sync.aligned.m64n{N}k16.f32.{ty}.{ty} {{{}}}, {left}, %rd7, p, {sign}, 1, {layout}{};\n}}\n// end inline asm\n\
         wgmma.commit_group.sync.aligned;\n{wait}\n\
         mul.wide.u32 %rd6, %r1, {};\nadd.s64 %rd7, %rd1, %rd6;\n{results}ret;",
        N / 2,
        4 * FRAGMENT,
        descriptor(0, ta),
        descriptor(A_BYTES, tb),
        accumulate as u32,
        registers.join(", "),
        tb as u32,
        4 * N / 2,
    )
}

fn run_product(product: &Product, fence: &str, wait: &str) -> Outcome<(Vec<u32>, Counts)> {
    let encode = if product.bf16 { to_bf16 } else { to_f16 };
    let mut image = tile(A_BYTES, M, product.transposed[0], encode, factor_a);
    image.extend(tile(B_BYTES, N, product.transposed[1], encode, factor_b));
    let mut values: Vec<u32> = image.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
    if product.in_registers {
        for (thread, i) in (0..128).flat_map(|thread| (0..FRAGMENT).map(move |i| (thread, i))) {
            let (warp, lane) = (thread / 32, thread % 32);
            let (row, depth) = (16 * warp + lane / 4 + 8 * (i % 2), 16 + 2 * (lane % 4) + 8 * (i / 2));
            let [low, high] = [depth, depth + 1].map(|depth| u32::from(encode(factor_a(row, depth))));
            values.push(high << 16 | low);
        }
    }
    let words = values.len();
    values.resize(words + M * N, 0);
    let (values, counts) = run_sharing(&product_body(product, fence, wait), 128, image.len(), &values)?;
    Ok((values[words..].to_vec(), counts))
}

const FENCE: &str = "fence.proxy.async.shared::cta;";
const WAIT: &str = "wgmma.wait_group.sync.aligned 0;";

#[test]
fn a_warpgroup_multiplies_what_lies_swizzled_in_shared_memory_or_in_registers() {
    for case in 0..32 {
        let bit = |i: usize| case >> i & 1 == 1;
        let product = Product {
            transposed: [bit(0), bit(1)],
            bf16: bit(2),
            accumulate: bit(3),
            sign: if bit(3) { -1 } else { 1 },
            in_registers: bit(4),
        };
        let (values, counts) = run_product(&product, FENCE, WAIT).unwrap();
        for (place, value) in values.into_iter().enumerate() {
            let (thread, i) = (place / (N / 2), place % (N / 2));
            let (warp, lane) = (thread / 32, thread % 32);
            let row = 16 * warp + lane / 4 + 8 * (i / 2 % 2);
            let column = 8 * (i / 4) + 2 * (lane % 4) + i % 2;
            let sum: f32 = (16..32).map(|k| factor_a(row, k) * factor_b(column, k)).sum();
            let old = if product.accumulate { old_sum(warp, lane) } else { 0.0 };
            assert_eq!(f32::from_bits(value), old + product.sign as f32 * sum, "case {case}, {row} {column}");
        }
        let races = counts.races;
        assert_eq!((races.between_warps, races.between_lanes, races.unfinished, races.unfenced), (0, 0, 0, 0));
        assert_eq!(counts.matrix_macs, (M * N * 16) as u64);
    }
}

#[test]
fn what_a_warpgroup_must_not_do_is_seen() {
    let product = Product { bf16: true, transposed: [false, true], accumulate: false, sign: 1, in_registers: false };
    let races = |fence: &str, wait: &str| run_product(&product, fence, wait).unwrap().1.races;
    assert!(races("", WAIT).unfenced > 0);
    assert!(races(&format!("{FENCE}\nst.shared.b32 [%rd5], %r1;"), WAIT).unfenced > 0);
    // Written while it may still be read, and after the wait of one warp but not of all.
    assert!(races(FENCE, &format!("bar.sync 0;\nst.shared.b32 [%rd5], %r1;\n{WAIT}")).unfinished > 0);
    assert!(races(FENCE, &format!("bar.sync 0;\n{WAIT}\nst.shared.b32 [%rd5+10240], %r1;")).between_warps > 0);
    let late = races(FENCE, &format!("{WAIT}\nbar.sync 0;\nst.shared.b32 [%rd5], %r1;"));
    assert_eq!((late.between_warps, late.unfinished), (0, 0));

    let fails = |wait: &str| run_product(&product, FENCE, wait).err().unwrap();
    assert!(fails("").contains("without waiting"));
    assert!(fails("wgmma.wait_group.sync.aligned 1;").contains("without waiting"));
    let multiply = |threads: u32, before: &str, descriptor: u64| {
        let body = format!(
            "{before}mov.b64 %rd6, {descriptor};\nwgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 \
             {{%r2, %r3, %r4, %r5}}, %rd6, %rd6, 0, 1, 1, 0, 0;\nwgmma.commit_group.sync.aligned;\n{WAIT}\nDONE:\nret;"
        );
        run_sharing(&body, threads, 8192, &[0]).err().unwrap()
    };
    let whole = 64 << 32 | 1 << 62;
    assert!(multiply(128, "", 1 << 49 | whole).contains("base offset 1"));
    assert!(multiply(128, "", 64 << 32 | 2 << 62).contains("swizzle 2"));
    assert!(multiply(128, "", whole | 64).contains("of shared memory"));
    assert!(multiply(96, "", whole).contains("fewer than four warps"));
    let some = |threads: u32| format!("setp.lt.u32 %p1, %r1, {threads};\n@!%p1 bra DONE;\n");
    assert!(multiply(128, &some(80), whole).contains("are not here"));
    assert!(multiply(128, &some(96), whole).contains("[1, 1, 1, 0]"));
}
