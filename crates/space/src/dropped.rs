//! Numbers of dropped tablespaces, as ranges: ids are given out one after another, so there are about as many ranges as
//! there are tablespaces between them that were not dropped.

use std::collections::BTreeMap;

/// A set of numbers; each range's first number, and its last one.
#[derive(Default)]
pub(crate) struct Ranges(BTreeMap<u32, u32>);

impl Ranges {
    pub(crate) fn contains(&self, n: u32) -> bool {
        self.0.range(..=n).next_back().is_some_and(|(_, &last)| n <= last)
    }

    pub(crate) fn insert(&mut self, n: u32) {
        if self.contains(n) {
            return;
        }
        let before = self.0.range(..n).next_back().filter(|(_, &last)| last + 1 == n);
        let first = before.map_or(n, |(&first, _)| first);
        let last = n.checked_add(1).and_then(|next| self.0.remove(&next)).unwrap_or(n);
        self.0.insert(first, last);
    }

    /// How many ranges.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[test]
fn ranges_grow_together() {
    let mut random = myriad_base::random::Random::from_seed(1);
    for _ in 0..100 {
        let (mut ranges, mut model) = (Ranges::default(), std::collections::BTreeSet::new());
        for _ in 0..random.below(60) {
            let n = match random.below(40) as u32 {
                0 => u32::MAX,
                n => n,
            };
            ranges.insert(n);
            model.insert(n);
            let starts = model.iter().filter(|&&n| n == 0 || !model.contains(&(n - 1))).count();
            assert_eq!(ranges.len(), starts);
            assert!((0..50).chain([u32::MAX]).all(|n| ranges.contains(n) == model.contains(&n)));
        }
    }
}
