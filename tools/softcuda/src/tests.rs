//! Small kernels, each with one thing that must be right or must be seen.

use crate::{block::Launch, execute::run, lanes::Outcome, memory, number::*, parse::parse, profile::Counts};

/// Runs the body of a kernel on `threads` threads with one buffer of `values`, which come back.
fn run_body(body: &str, threads: u32, values: &[u32]) -> Outcome<(Vec<u32>, Counts)> {
    let text = format!(
        ".version 9.0\n.target sm_90a\n.address_size 64\n.extern .shared .align 4 .b8 room[];\n\
         .visible .entry k(\n\t.param .u64 .ptr .global .align 4 k_param_0\n)\n.reqntid {threads}, 1, 1\n{{\n\
         .reg .pred %p<9>;\n.reg .b32 %r<19>;\n.reg .b64 %rd<9>;\n\
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
        shared: 4 * threads as usize,
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
    // Thread i goes round i % 5 times; odd ones add 100. Then all lanes of the warp vote, which
    // needs all of them.
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
    assert_eq!((counts.sectors, counts.rounds), (counts.least_sectors, counts.least_rounds));
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
