//! The texts of a search as one tree: a text is a node, and its tokens are those on the path to the
//! root.
//!
//! Texts share their common prefixes, so forking a beam copies nothing.

use crate::completion::ChosenToken;

/// A text: its parent text and one more token.
pub(super) type NodeId = usize;

/// The empty text, from which every prompt starts.
pub(super) const ROOT: NodeId = 0;

struct Node {
    parent: NodeId,
    len: usize,
    token: ChosenToken,
}

/// All texts that one prompt's beams have reached so far.
#[derive(Default)]
pub(super) struct Tree(Vec<Node>);

impl Tree {
    /// Adds the text `parent` plus one more token.
    pub(super) fn grow(&mut self, parent: NodeId, token: ChosenToken) -> NodeId {
        self.0.push(Node { parent, len: self.len(parent) + 1, token });
        self.0.len()
    }

    /// The text that was added last.
    pub(super) fn newest(&self) -> NodeId {
        self.0.len()
    }

    /// The text's node; the root has none.
    fn node(&self, text: NodeId) -> Option<&Node> {
        text.checked_sub(1).and_then(|index| self.0.get(index))
    }

    /// Length of a text in tokens.
    pub(super) fn len(&self, text: NodeId) -> usize {
        self.node(text).map_or(0, |node| node.len)
    }

    /// A text's last token; the root has none.
    pub(super) fn last(&self, text: NodeId) -> Option<&ChosenToken> {
        self.node(text).map(|node| &node.token)
    }

    /// The tokens of `text` after its first `skip`.
    pub(super) fn tokens(&self, text: NodeId, skip: usize) -> Vec<ChosenToken> {
        let mut tokens = Vec::new();
        let mut next = self.node(text);
        while let Some(node) = next.filter(|node| node.len > skip) {
            tokens.push(node.token.clone());
            next = self.node(node.parent);
        }
        tokens.reverse();
        tokens
    }

    /// The longest common prefix of two texts.
    pub(super) fn common(&self, mut a: NodeId, mut b: NodeId) -> NodeId {
        let parent = |text| self.node(text).map_or(ROOT, |node| node.parent);
        while a != b {
            let (len_a, len_b) = (self.len(a), self.len(b));
            if len_a >= len_b {
                a = parent(a);
            }
            if len_b >= len_a {
                b = parent(b);
            }
        }
        a
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_share_their_beginning() {
        let token = |id| ChosenToken { id, logprob: -1.0, top: Vec::new() };
        let mut tree = Tree::default();
        let a = tree.grow(ROOT, token(1));
        let ab = tree.grow(a, token(2));
        let abc = tree.grow(ab, token(3));
        let ad = tree.grow(a, token(4));
        let other = tree.grow(ROOT, token(5));
        let ids = |text, skip| tree.tokens(text, skip).iter().map(|token| token.id).collect::<Vec<_>>();
        assert_eq!((ids(abc, 0), ids(abc, 1), ids(abc, 3), ids(ROOT, 0)), (vec![1, 2, 3], vec![2, 3], vec![], vec![]));
        assert_eq!((tree.common(abc, ad), tree.common(ad, abc), tree.common(abc, ab)), (a, a, ab));
        assert_eq!((tree.common(abc, other), tree.common(other, ROOT), tree.common(ad, ad)), (ROOT, ROOT, ad));
        assert_eq!((tree.len(abc), tree.len(ROOT), tree.last(ROOT)), (3, 0, None));
    }
}
