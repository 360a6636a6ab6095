//! The driver's state, and how it performs the work given to a stream: at once, or later if the
//! stream is being captured.

use crate::{block::Launch, execute, memory, profile::Counts, ptx};
use std::{
    collections::HashMap,
    ffi::{c_uint, c_void},
    sync::{Mutex, MutexGuard, OnceLock},
};

pub type Status = c_uint;
pub type Pointer = *mut c_void;

pub const SUCCESS: Status = 0;
pub const INVALID_VALUE: Status = 1;
pub const OUT_OF_MEMORY: Status = 2;
pub const INVALID_PTX: Status = 218;
pub const NOT_FOUND: Status = 500;
pub const LAUNCH_FAILED: Status = 719;
pub const CAPTURE_UNSUPPORTED: Status = 900;

/// A kernel, and the maximum of shared memory set for it.
pub struct Function {
    pub module: &'static ptx::Module,
    pub index: usize,
    pub max_shared: usize,
}

/// An operation given to a stream, a node of a graph.
#[derive(Clone)]
pub enum Node {
    Kernel {
        function: usize,
        params: Vec<u8>,
        grid: (u32, u32, u32),
        block: (u32, u32, u32),
        shared: usize,
    },
    Copy {
        to: u64,
        from: u64,
        bytes: usize,
    },
    /// An allocation or a release, which is performed during the capture.
    Memory,
}

#[derive(Default)]
pub struct Driver {
    pub capture: Option<(usize, Vec<Node>)>,
    pub counts: HashMap<String, Counts>,
    pub streams: usize,
    pub calls: HashMap<&'static str, u64>,
}

pub fn driver() -> MutexGuard<'static, Driver> {
    static DRIVER: OnceLock<Mutex<Driver>> = OnceLock::new();
    DRIVER.get_or_init(|| Mutex::new(Driver::default())).lock().unwrap()
}

pub fn count_call(call: &'static str) {
    *driver().calls.entry(call).or_default() += 1;
}

pub fn warn(text: &str) {
    eprintln!("softcuda: {text}");
}

pub fn capturing(stream: Pointer) -> bool {
    driver().capture.as_ref().is_some_and(|(s, _)| *s == stream as usize)
}

/// Whether a stream is being captured, in which case this call is forbidden; prints a warning then.
pub fn refused_while_capturing(what: &str) -> bool {
    let recording = driver().capture.is_some();
    if recording {
        warn(&format!("{what} while a stream is recorded"));
    }
    recording
}

pub fn record(stream: Pointer, node: Node) -> bool {
    let mut driver = driver();
    match &mut driver.capture {
        Some((s, nodes)) if *s == stream as usize => {
            nodes.push(node);
            true
        }
        _ => false,
    }
}

/// The number of blocks to run of this kernel, from `SOFTCUDA_SAMPLE`: a number, a colon, and
/// comma-separated prefixes of kernel names.
pub fn sample_of(kernel: &str) -> Option<usize> {
    let wanted = std::env::var("SOFTCUDA_SAMPLE").ok()?;
    let (blocks, names) = wanted.split_once(':')?;
    names.split(',').any(|name| kernel.starts_with(name)).then(|| blocks.parse().ok()).flatten()
}

pub unsafe fn perform(node: &Node) -> Status {
    unsafe {
        match node {
            Node::Kernel { function, params, grid, block, shared } => {
                let function = &*(*function as *const Function);
                let kernel = &function.module.kernels[function.index];
                let launch = Launch {
                    kernel,
                    params: params.clone(),
                    grid: *grid,
                    block: *block,
                    shared: kernel.shared + shared,
                    ranges: memory::ranges(),
                    check_races: std::env::var_os("SOFTCUDA_RACES").is_some(),
                    profile: std::env::var_os("SOFTCUDA_PROFILE").is_some(),
                    sample: sample_of(&kernel.name),
                    globals: &function.module.globals,
                };
                match execute::run(&launch) {
                    Ok(mut counts) => {
                        counts.launches = 1;
                        counts.blocks = grid.0 as u64 * grid.1 as u64 * grid.2 as u64;
                        let r = counts.races;
                        let mut driver = driver();
                        let total = driver.counts.entry(kernel.name.clone()).or_default();
                        let before = total.races;
                        for (found, before, how) in [
                            (r.between_warps, before.between_warps, "race between warps"),
                            (r.between_lanes, before.between_lanes, "race between lanes of a warp"),
                            (r.unfinished, before.unfinished, "race with a cp.async or wgmma not waited for"),
                            (r.unfenced, before.unfenced, "race with wgmma for want of a fence.proxy.async"),
                        ] {
                            if found > 0 && before == 0 {
                                warn(&format!("{}: {found} accesses to shared memory {how}", kernel.name));
                            }
                        }
                        total.add(counts);
                        SUCCESS
                    }
                    Err(error) => {
                        warn(&error);
                        LAUNCH_FAILED
                    }
                }
            }
            Node::Copy { to, from, bytes } => {
                std::ptr::copy(*from as *const u8, *to as *mut u8, *bytes);
                SUCCESS
            }
            Node::Memory => SUCCESS,
        }
    }
}

pub unsafe fn perform_or_record(stream: Pointer, node: Node) -> Status {
    if record(stream, node.clone()) { SUCCESS } else { unsafe { perform(&node) } }
}

/// Writes the profile. Called whenever the program synchronizes, as it may end without notice.
pub fn report() {
    let Some(path) = std::env::var_os("SOFTCUDA_PROFILE") else { return };
    let driver = driver();
    let mut rows: Vec<_> = driver.counts.iter().collect();
    rows.sort_by_key(|(_, c)| std::cmp::Reverse(c.instructions));
    let mut text = String::from(
        "launches\tblocks\twarp_instructions\tlanes_active\tdivergent\tbarriers\tatomics\tmatrix_macs\tsectors\tover_least\tshared_rounds\tover_least\twarp_races\tlane_races\tkernel\n",
    );
    for (name, c) in rows {
        let share = |a: u64, b: u64| if b == 0 { 0.0 } else { a as f64 / b as f64 };
        text += &format!(
            "{}\t{}\t{}\t{:.2}\t{}\t{}\t{}\t{}\t{}\t{:.2}\t{}\t{:.2}\t{}\t{}\t{name}\n",
            c.launches,
            c.blocks,
            c.instructions,
            share(c.lanes, c.instructions) / 32.0,
            c.divergent,
            c.barriers,
            c.atomics,
            c.matrix_macs,
            c.sectors,
            share(c.sectors, c.min_sectors),
            c.rounds,
            share(c.rounds, c.min_rounds),
            c.races.between_warps,
            c.races.between_lanes,
        );
    }
    let mut calls: Vec<_> = driver.calls.iter().collect();
    calls.sort();
    for (name, times) in calls {
        text += &format!("{times}\t{name}\n");
    }
    let _ = std::fs::write(path, text);
}
