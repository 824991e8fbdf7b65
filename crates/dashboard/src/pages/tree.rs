//! Threads as a tree. Parents are what hosts say, so they may be missing, or go round in circles.

use std::collections::HashMap;

/// The order in which to show them, each with its depth: children behind their parent. Everything is in it once.
pub(crate) fn order(nodes: &[(&str, Option<&str>)]) -> Vec<(usize, usize)> {
    let places: HashMap<&str, usize> =
        nodes.iter().enumerate().rev().map(|(at, (id, _))| (*id, at)).collect();
    let mut children: HashMap<Option<usize>, Vec<usize>> = HashMap::new();
    for (at, (_, parent)) in nodes.iter().enumerate() {
        let parent = parent.and_then(|parent| places.get(parent).copied()).filter(|parent| *parent != at);
        children.entry(parent).or_default().push(at);
    }
    let mut order = Vec::with_capacity(nodes.len());
    let mut seen = vec![false; nodes.len()];
    let mut stack: Vec<(usize, usize)> = Vec::new();
    let roots = children.remove(&None).unwrap_or_default();
    // Behind the roots: whoever is in a circle is reached from none of them.
    for root in roots.into_iter().chain(0..nodes.len()) {
        stack.push((root, 0));
        while let Some((at, depth)) = stack.pop() {
            if std::mem::replace(&mut seen[at], true) {
                continue;
            }
            order.push((at, depth));
            let below = children.get(&Some(at)).map(Vec::as_slice).unwrap_or_default();
            stack.extend(below.iter().rev().map(|child| (*child, depth + 1)));
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_stand_behind_their_parent() {
        let nodes = [("b", Some("a")), ("a", None), ("c", Some("b")), ("d", Some("a")), ("e", Some("gone"))];
        assert_eq!(order(&nodes), [(1, 0), (0, 1), (2, 2), (3, 1), (4, 0)]);
    }

    #[test]
    fn circles_and_doubles_end() {
        assert_eq!(order(&[("a", Some("b")), ("b", Some("a")), ("c", Some("c"))]), [(2, 0), (0, 0), (1, 1)]);
        assert_eq!(order(&[("a", None), ("a", None), ("b", Some("a"))]).len(), 3);
        let ids: Vec<String> = (0..100_000).map(|number| number.to_string()).collect();
        let deep: Vec<_> = ids
            .iter()
            .enumerate()
            .map(|(at, id)| (id.as_str(), at.checked_sub(1).map(|at| ids[at].as_str())))
            .collect();
        assert_eq!(order(&deep).last(), Some(&(99_999, 99_999)));
    }
}
