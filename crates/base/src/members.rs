//! Who is there: sessions, threads. They come and go at any time, and are looked through in the order in which they came.

use std::collections::BTreeMap;

/// Members by number, a later one's larger. Each leaves by its number: one who was searched for would cost the more, the more
/// others are there.
#[derive(Debug)]
pub struct Members<T>(BTreeMap<u64, T>);

impl<T> Members<T> {
    /// Nobody.
    pub const fn new() -> Members<T> {
        Members(BTreeMap::new())
    }

    /// Takes `member` in; its number, by which it leaves. Numbers of those who have left may be given again.
    pub fn join(&mut self, member: T) -> u64 {
        let number = self.0.last_key_value().map_or(0, |(last, _)| last + 1);
        self.0.insert(number, member);
        number
    }

    /// The member of that number leaves.
    pub fn leave(&mut self, number: u64) {
        self.0.remove(&number);
    }

    /// All, the first comer first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.values()
    }
}

impl<T> Default for Members<T> {
    fn default() -> Members<T> {
        Members::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_leave_in_any_order_and_are_listed_as_they_came() {
        let mut members = Members::new();
        let numbers: Vec<u64> = (0..5).map(|name| members.join(name)).collect();
        members.leave(numbers[1]);
        members.leave(numbers[4]);
        members.join(5);
        assert_eq!(members.iter().copied().collect::<Vec<_>>(), [0, 2, 3, 5]);
    }
}
