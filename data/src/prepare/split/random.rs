//! The random split: holds out the documents whose content has a seeded hash in the lowest part of
//! its range. Near-duplicates follow the first document of their group.

use super::candidates::Candidate;
use crate::near_duplicates::Groups;
use bit_vec::BitVec;

/// Whether a hash is in the lowest part of its range, of relative size `share`.
pub fn is_in_lowest_share(share: f64, hash: u64) -> bool {
    (hash as f64) < share * 2f64.powi(64)
}

/// For each document, by the hash of its content, whether it is held out.
pub fn random_sides(share: f64, hashes: &[u64], near: &Groups<Candidate>) -> BitVec {
    let mut sides = BitVec::default();
    hashes.iter().for_each(|&hash| sides.push(is_in_lowest_share(share, hash)));
    follow_first(&mut sides, near);
    sides
}

/// Moves near-duplicates to the side of the first of their group; returns by how many bytes the
/// held-out text grows.
pub fn follow_first(sides: &mut BitVec, near: &Groups<Candidate>) -> i64 {
    let mut growth = 0;
    for group in &near.groups {
        let side = sides.get(group[0].number as usize).unwrap_or_default();
        for document in group {
            match (sides.get(document.number as usize), side) {
                (Some(false), true) => growth += document.bytes as i64,
                (Some(true), false) => growth -= document.bytes as i64,
                _ => {}
            }
            sides.set(document.number as usize, side);
        }
    }
    growth
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_duplicates_follow_the_first_of_their_group() {
        // Half of the range is held out: documents 0, 2 and 3.
        let hashes = [1, u64::MAX, 2, 3, u64::MAX - 1];
        let document = |number: usize| Candidate {
            bytes: 10 << number,
            number: number as u64,
            hash: hashes[number],
            characters: 10,
            resembles: false,
        };
        let groups = vec![vec![document(0), document(1)], vec![document(4), document(2), document(3)]];
        let near = Groups { groups, one_in: 1 };
        let held_out = |sides: BitVec| sides.iter().collect::<Vec<_>>();
        assert_eq!(held_out(random_sides(0.5, &hashes, &Groups::default())), [true, false, true, true, false]);
        assert_eq!(held_out(random_sides(0.5, &hashes, &near)), [true, true, false, false, false]);
        let mut sides = random_sides(0.5, &hashes, &Groups::default());
        assert_eq!(follow_first(&mut sides, &near), 20 - 40 - 80);
        assert_eq!(follow_first(&mut sides, &near), 0);
    }
}
