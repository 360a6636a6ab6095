//! Where diverged lanes reconverge: at the branch's immediate post-dominator, the first instruction
//! that lies on all paths from it (Cooper, Harvey and Kennedy, "A simple, fast dominance
//! algorithm", on the reversed graph).

use crate::ptx::{Instruction, Op};

/// No reconvergence before the kernel's end.
pub const NEVER: u32 = u32::MAX;

/// The immediate post-dominator of each instruction; for a branch, where its paths reconverge.
pub fn reconvergence_points(code: &[Instruction]) -> Vec<u32> {
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
    // The end, after all instructions, is the entry of the reversed graph.
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
    while let Some((at, next_index)) = path.pop() {
        match backward[at].get(next_index) {
            Some(&before) => {
                path.push((at, next_index + 1));
                if !seen[before] {
                    seen[before] = true;
                    path.push((before, 0));
                }
            }
            None => order.push(at),
        }
    }
    let mut postorder = vec![0; end + 1];
    order.iter().enumerate().for_each(|(i, &at)| postorder[at] = i);
    let mut post_dominator = vec![usize::MAX; end + 1];
    post_dominator[end] = end;
    let mut changed = true;
    while changed {
        changed = false;
        for &at in order.iter().rev().skip(1) {
            let mut best = usize::MAX;
            for &next in forward[at].iter().filter(|next| post_dominator[**next] != usize::MAX) {
                best = if best == usize::MAX { next } else { intersect(best, next, &post_dominator, &postorder) };
            }
            if post_dominator[at] != best {
                post_dominator[at] = best;
                changed = true;
            }
        }
    }
    post_dominator[..end].iter().map(|&at| if at >= end { NEVER } else { at as u32 }).collect()
}

/// The nearest common post-dominator (`intersect` in the paper).
fn intersect(mut a: usize, mut b: usize, post_dominator: &[usize], postorder: &[usize]) -> usize {
    while a != b {
        while postorder[a] < postorder[b] {
            a = post_dominator[a];
        }
        while postorder[b] < postorder[a] {
            b = post_dominator[b];
        }
    }
    a
}
