//! The beams as a tree of lines: shared prefixes appear once, and ended branches show how they
//! ended.

use ember_decoding::trace::{BeamStep, Fate};

struct Node {
    token: u32,
    parent: Option<usize>,
    /// Tokens before it.
    step: usize,
    /// The sum of the log-probabilities so far, in nats.
    score: f64,
    /// Whether it is the end of a finished text.
    finished: bool,
}

/// The tree after some steps, in at most `room` lines if possible, and the first step whose pruned
/// branches are shown: of a tree that is too large, older ones are left out. `name` gives the text
/// of consecutive tokens.
pub(super) fn lines(steps: &[BeamStep], room: usize, name: &dyn Fn(&[u32]) -> String) -> (Vec<String>, usize) {
    let (nodes, running) = build_nodes(steps);
    let tree_since = |since: usize| Tree::new(&nodes, &running, &shown_nodes(&nodes, &running, since), name);
    // Fewer branches never take more lines, so binary search finds the first step that leaves few
    // enough.
    let (mut since, mut end) = (0, steps.len());
    while since < end {
        let middle = since.midpoint(end);
        if tree_since(middle).line_count() <= room {
            end = middle;
        } else {
            since = middle + 1;
        }
    }
    let mut lines = Vec::new();
    tree_since(since).write_children(None, "", &mut lines);
    (lines, since)
}

/// All nodes that were ever kept, and the nodes of the running beams.
fn build_nodes(steps: &[BeamStep]) -> (Vec<Node>, Vec<usize>) {
    let mut nodes: Vec<Node> = Vec::new();
    let mut beams: Vec<Option<usize>> = vec![None]; // the prompt itself
    for step in steps {
        let mut next: Vec<(usize, Option<usize>)> = Vec::new();
        for candidate in &step.candidates {
            let finished = match candidate.fate {
                Fate::GoesOn { .. } => false,
                Fate::Finished { kept: true, .. } => true,
                _ => continue,
            };
            let parent = beams.get(candidate.parent).copied().flatten();
            nodes.push(Node { token: candidate.token, parent, step: step.step, score: candidate.score, finished });
            if let Fate::GoesOn { beam } = candidate.fate {
                next.push((beam, Some(nodes.len() - 1)));
            }
        }
        next.sort_unstable();
        beams = next.into_iter().map(|(_, node)| node).collect();
    }
    (nodes, beams.into_iter().flatten().collect())
}

/// Which nodes are shown: running beams, finished texts, branches pruned from step `since` on, and
/// the ancestors of all these.
fn shown_nodes(nodes: &[Node], running: &[usize], since: usize) -> Vec<bool> {
    let mut shown: Vec<bool> = nodes.iter().map(|node| node.step >= since || node.finished).collect();
    running.iter().for_each(|&node| shown[node] = true);
    // Children come after their parents, so the reverse order visits children first.
    for (number, node) in nodes.iter().enumerate().rev() {
        if let Some(parent) = node.parent {
            shown[parent] |= shown[number];
        }
    }
    shown
}

/// The shown nodes with their children, ready to be printed.
struct Tree<'a> {
    nodes: &'a [Node],
    running: &'a [usize],
    /// The shown children of each node; the last entry holds the children of the prompt.
    children: Vec<Vec<usize>>,
    name: &'a dyn Fn(&[u32]) -> String,
}

impl<'a> Tree<'a> {
    fn new(nodes: &'a [Node], running: &'a [usize], shown: &[bool], name: &'a dyn Fn(&[u32]) -> String) -> Self {
        let mut children = vec![Vec::new(); nodes.len() + 1];
        for (number, node) in nodes.iter().enumerate().filter(|&(number, _)| shown[number]) {
            children[node.parent.unwrap_or(nodes.len())].push(number);
        }
        Self { nodes, running, children, name }
    }

    fn children(&self, parent: Option<usize>) -> &[usize] {
        &self.children[parent.unwrap_or(self.nodes.len())]
    }

    /// Number of lines: one for each root, and one for each child of a fork.
    fn line_count(&self) -> usize {
        let roots = self.children(None).len();
        roots + self.children[..self.nodes.len()].iter().map(Vec::len).filter(|&children| children > 1).sum::<usize>()
    }

    /// Writes a line for each child of `parent`, each followed by its own children; a chain without
    /// a fork is one line.
    fn write_children(&self, parent: Option<usize>, indent: &str, lines: &mut Vec<String>) {
        let mut siblings = self.children(parent).to_vec();
        siblings.sort_by(|&a, &b| self.nodes[b].score.total_cmp(&self.nodes[a].score));
        for (place, &first) in siblings.iter().enumerate() {
            let (mut last, mut tokens) = (first, vec![self.nodes[first].token]);
            while let &[only] = self.children(Some(last)) {
                tokens.push(self.nodes[only].token);
                last = only;
            }
            let text = (self.name)(&tokens);
            let is_last = place + 1 == siblings.len();
            let (branch, rail) = if is_last { ("\u{2514} ", "  ") } else { ("\u{251c} ", "\u{2502} ") };
            lines.push(format!("{indent}{branch}{text}  {:.2}{}", self.nodes[last].score, self.end(last)));
            self.write_children(Some(last), &format!("{indent}{rail}"), lines);
        }
    }

    /// The suffix that shows how a branch ends at `node`; empty if the branch forks there.
    fn end(&self, node: usize) -> &'static str {
        match self.nodes[node].finished {
            true => "  finished",
            false if !self.children(Some(node)).is_empty() => "",
            false if self.running.contains(&node) => "  runs",
            false => "  pruned",
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use ember_decoding::FinishReason;
    use ember_decoding::trace::BeamCandidate;

    pub(in super::super) fn step(number: usize, candidates: &[(usize, u32, f64, Fate)]) -> BeamStep {
        let candidate = |&(parent, token, score, fate): &(usize, u32, f64, Fate)| BeamCandidate {
            parent,
            token,
            logprob: score as f32,
            model_logprob: score as f32,
            score,
            rank_key: score,
            fate,
        };
        let candidates = candidates.iter().map(candidate).collect();
        BeamStep { prompt: 0, step: number, group: 0, beams: Vec::new(), candidates, pool: Vec::new(), stopped: None }
    }

    /// Two beams, 0 and 1; both continuations come from 0, so 1 is pruned; one of them ends.
    pub(in super::super) fn search() -> Vec<BeamStep> {
        let finished = Fate::Finished { final_score: -1.0, reason: FinishReason::Eos, kept: true };
        vec![
            step(
                0,
                &[
                    (0, 0, -0.92, Fate::GoesOn { beam: 0 }),
                    (0, 1, -1.2, Fate::GoesOn { beam: 1 }),
                    (0, 2, -1.6, Fate::Pruned),
                ],
            ),
            step(
                1,
                &[
                    (0, 1, -1.5, Fate::GoesOn { beam: 0 }),
                    (0, 3, -1.9, Fate::GoesOn { beam: 1 }),
                    (1, 2, -2.5, Fate::Pruned),
                ],
            ),
            step(
                2,
                &[
                    (1, 5, -2.0, finished),
                    (1, 2, -2.6, Fate::GoesOn { beam: 1 }),
                    (0, 4, -2.5, Fate::GoesOn { beam: 0 }),
                ],
            ),
        ]
    }

    /// One letter per token.
    fn name(ids: &[u32]) -> String {
        ids.iter().map(|&id| (b'a' + id as u8) as char).collect()
    }

    #[test]
    fn the_tree_by_hand() {
        let lines = |steps: &[BeamStep]| lines(steps, 9, &name).0;
        assert_eq!(lines(&search()[..1]), ["├ a  -0.92  runs", "└ b  -1.20  runs"]);
        assert_eq!(
            lines(&search()[..2]),
            ["├ a  -0.92", "│ ├ b  -1.50  runs", "│ └ d  -1.90  runs", "└ b  -1.20  pruned"]
        );
        let grown = [
            "├ a  -0.92",
            "│ ├ be  -2.50  runs",
            "│ └ d  -1.90",
            "│   ├ f  -2.00  finished",
            "│   └ c  -2.60  runs",
            "└ b  -1.20  pruned",
        ];
        assert_eq!(lines(&search()), grown);
        assert!(lines(&[]).is_empty());
    }

    #[test]
    fn a_tree_too_large_loses_first_what_was_given_up_first() {
        let fitted =
            ["└ a  -0.92", "  ├ be  -2.50  runs", "  └ d  -1.90", "    ├ f  -2.00  finished", "    └ c  -2.60  runs"];
        assert_eq!(lines(&search(), 5, &name), (fitted.map(str::to_owned).to_vec(), 1));
        // Running and finished branches are never omitted.
        assert_eq!(lines(&search(), 2, &name).0.len(), 5);
    }

    #[test]
    fn a_tree_of_a_thousand_steps_is_drawn_at_once() {
        const BEAMS: u32 = 8;
        // All beams continue from the first, so that each step prunes seven branches.
        let goes_on = |beam: u32| (0, beam, -f64::from(beam), Fate::GoesOn { beam: beam as usize });
        let kept: Vec<_> = (0..BEAMS).map(goes_on).collect();
        let steps: Vec<BeamStep> = (0..1000).map(|number| step(number, &kept)).collect();
        let began = Instant::now();
        let (lines, since) = lines(&steps, 40, &name);
        // One line for the path to step 996, and eight for each step after it.
        assert_eq!((lines.len(), since), (33, 996));
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    }
}
