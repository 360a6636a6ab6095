//! Where lanes that took different ways meet again: the first instruction that all ways lead
//! through, a branch's immediate post-dominator (Cooper, Harvey and Kennedy's "A simple, fast
//! dominance algorithm", on the graph turned round).

use crate::ptx::{Instruction, Op};

/// No such place: the ways meet only at the kernel's end.
pub const NOWHERE: u32 = u32::MAX;

/// For each instruction that is a branch, the instruction where its ways meet.
pub fn meeting_points(code: &[Instruction]) -> Vec<u32> {
    let successors = |i: usize| -> Vec<usize> {
        let next = (i + 1 < code.len()).then_some(i + 1);
        match &code[i].op {
            Op::Branch { target } if code[i].guard.is_none() => vec![*target],
            Op::Branch { target } => next.into_iter().chain([*target]).collect(),
            Op::BranchTable { targets, .. } => targets.clone(),
            Op::Exit | Op::Trap if code[i].guard.is_none() => vec![],
            _ => next.into_iter().collect(),
        }
    };
    // The end, behind all instructions, is where the turned graph begins.
    let end = code.len();
    let mut forward: Vec<Vec<usize>> = (0..end).map(successors).collect();
    let mut backward = vec![Vec::new(); end + 1];
    for (i, list) in forward.iter_mut().enumerate() {
        if list.is_empty() {
            list.push(end);
        }
        list.iter().for_each(|&next| backward[next].push(i));
    }
    let mut order = Vec::new();
    let mut seen = vec![false; end + 1];
    let mut path = vec![(end, 0)];
    seen[end] = true;
    while let Some((at, turn)) = path.pop() {
        match backward[at].get(turn) {
            Some(&before) => {
                path.push((at, turn + 1));
                if !seen[before] {
                    seen[before] = true;
                    path.push((before, 0));
                }
            }
            None => order.push(at),
        }
    }
    let mut number = vec![0; end + 1];
    order.iter().enumerate().for_each(|(i, &at)| number[at] = i);
    let mut over = vec![usize::MAX; end + 1];
    over[end] = end;
    let mut changed = true;
    while changed {
        changed = false;
        for &at in order.iter().rev().skip(1) {
            let mut best = usize::MAX;
            for &next in forward[at].iter().filter(|next| over[**next] != usize::MAX) {
                best = if best == usize::MAX { next } else { meet(best, next, &over, &number) };
            }
            if over[at] != best {
                over[at] = best;
                changed = true;
            }
        }
    }
    over[..end].iter().map(|&at| if at >= end { NOWHERE } else { at as u32 }).collect()
}

fn meet(mut a: usize, mut b: usize, over: &[usize], number: &[usize]) -> usize {
    while a != b {
        while number[a] < number[b] {
            a = over[a];
        }
        while number[b] < number[a] {
            b = over[b];
        }
    }
    a
}
