//! The beams as a tree of lines: what they share stands once, and branches that ended say how.

use crate::beam::{BeamStep, Fate};

/// How a branch ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// It runs, or others grow out of it.
    Live,
    /// It is among the finished texts.
    Finished,
}

struct Node {
    token: u32,
    parent: Option<usize>,
    /// The sum of the log-probabilities so far, in nats.
    score: f64,
    end: End,
}

/// The tree after some steps, as lines; `name` tells what a token says.
pub(super) fn lines(steps: &[BeamStep], name: &dyn Fn(u32) -> String) -> Vec<String> {
    let (nodes, running) = grown(steps);
    let mut lines = Vec::new();
    write_children(&nodes, &running, None, "", name, &mut lines);
    lines
}

/// All nodes that were ever kept, and those of the beams that run.
fn grown(steps: &[BeamStep]) -> (Vec<Node>, Vec<usize>) {
    let mut nodes: Vec<Node> = Vec::new();
    let mut beams: Vec<Option<usize>> = vec![None]; // the prompt itself
    for step in steps {
        let mut next: Vec<(usize, Option<usize>)> = Vec::new();
        for candidate in &step.candidates {
            let end = match candidate.fate {
                Fate::GoesOn { .. } => End::Live,
                Fate::Finished { kept: true, .. } => End::Finished,
                _ => continue,
            };
            let parent = beams.get(candidate.parent).copied().flatten();
            nodes.push(Node { token: candidate.token, parent, score: candidate.score, end });
            if let Fate::GoesOn { beam } = candidate.fate {
                next.push((beam, Some(nodes.len() - 1)));
            }
        }
        next.sort_unstable();
        beams = next.into_iter().map(|(_, node)| node).collect();
    }
    (nodes, beams.into_iter().flatten().collect())
}

/// A line for each child of `parent`, with those of its own children behind it; a chain without a fork is one line.
fn write_children(
    nodes: &[Node],
    running: &[usize],
    parent: Option<usize>,
    indent: &str,
    name: &dyn Fn(u32) -> String,
    lines: &mut Vec<String>,
) {
    let children = |parent: Option<usize>| (0..nodes.len()).filter(move |&node| nodes[node].parent == parent);
    let mut siblings: Vec<usize> = children(parent).collect();
    siblings.sort_by(|&a, &b| nodes[b].score.total_cmp(&nodes[a].score));
    for (place, &first) in siblings.iter().enumerate() {
        let (mut last, mut text) = (first, name(nodes[first].token));
        loop {
            let mut next = children(Some(last));
            match (next.next(), next.next()) {
                (Some(only), None) => {
                    text += &name(nodes[only].token);
                    last = only;
                }
                _ => break,
            }
        }
        let grows = children(Some(last)).next().is_some();
        let end = match (nodes[last].end, grows) {
            (End::Finished, _) => "  finished",
            (End::Live, true) => "",
            (End::Live, false) if running.contains(&last) => "  runs",
            (End::Live, false) => "  pruned",
        };
        let is_last = place + 1 == siblings.len();
        let (branch, rail) = if is_last { ("\u{2514} ", "  ") } else { ("\u{251c} ", "\u{2502} ") };
        lines.push(format!("{indent}{branch}{text}  {:.2}{end}", nodes[last].score));
        write_children(nodes, running, Some(last), &format!("{indent}{rail}"), name, lines);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::beam::BeamCandidate;
    use crate::stop::FinishReason;

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
        BeamStep { prompt: 0, step: number, group: 0, candidates, pool: Vec::new(), stopped: None }
    }

    /// Two beams: 0 and 1; both go on from 0, so 1 is given up; one of them ends.
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

    #[test]
    fn the_tree_by_hand() {
        let name = |id: u32| ((b'a' + id as u8) as char).to_string();
        assert_eq!(lines(&search()[..1], &name), ["├ a  -0.92  runs", "└ b  -1.20  runs"]);
        assert_eq!(
            lines(&search()[..2], &name),
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
        assert_eq!(lines(&search(), &name), grown);
        assert!(lines(&[], &name).is_empty());
    }
}
