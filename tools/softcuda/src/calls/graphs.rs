//! CUDA graphs: calls captured from a stream, replayed as one.

use crate::driver::*;
use std::ffi::c_uint;

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamBeginCapture_v2(stream: Pointer, _: c_uint) -> Status {
    let mut driver = driver();
    if driver.capture.is_some() {
        return CAPTURE_UNSUPPORTED;
    }
    driver.capture = Some((stream as usize, Vec::new()));
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamEndCapture(_: Pointer, graph: *mut Pointer) -> Status {
    count_call("cuStreamEndCapture");
    match driver().capture.take() {
        Some((_, nodes)) => {
            unsafe { *graph = Box::into_raw(Box::new(nodes)) as Pointer };
            SUCCESS
        }
        None => INVALID_VALUE,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphGetNodes(graph: Pointer, nodes: *mut Pointer, count: *mut usize) -> Status {
    let list = unsafe { &*(graph as *const Vec<Node>) };
    unsafe {
        if !nodes.is_null() {
            for (i, node) in list.iter().take(*count).enumerate() {
                *nodes.add(i) = node as *const Node as Pointer;
            }
        }
        *count = list.len();
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphNodeGetType(node: Pointer, kind: *mut c_uint) -> Status {
    unsafe {
        *kind = match &*(node as *const Node) {
            Node::Kernel { .. } => 0,
            Node::Copy { .. } => 1,
            Node::Memory => 10,
        };
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphInstantiateWithFlags(exec: *mut Pointer, graph: Pointer, _: u64) -> Status {
    let nodes = unsafe { (*(graph as *const Vec<Node>)).clone() };
    unsafe { *exec = Box::into_raw(Box::new(nodes)) as Pointer };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphDestroy(graph: Pointer) -> Status {
    drop(unsafe { Box::from_raw(graph as *mut Vec<Node>) });
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphExecDestroy(exec: Pointer) -> Status {
    unsafe { cuGraphDestroy(exec) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphLaunch(exec: Pointer, stream: Pointer) -> Status {
    count_call("cuGraphLaunch");
    let nodes = unsafe { &*(exec as *const Vec<Node>) };
    for node in nodes {
        let status = unsafe { perform_or_record(stream, node.clone()) };
        if status != SUCCESS {
            return status;
        }
    }
    SUCCESS
}
