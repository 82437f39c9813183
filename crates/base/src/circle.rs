//! Chains that lead back to themselves.

/// Finds that a chain comes back to where it was (Brent, 1980): compares each link with one that is kept, which is
/// replaced after twice as many steps each time.
#[derive(Default)]
pub struct Circle<T> {
    kept: Option<T>,
    steps: u64,
}

impl<T: Copy + PartialEq> Circle<T> {
    /// Whether the chain has been at this link before. Tells it within three times the links of the chain.
    pub fn closes_at(&mut self, link: T) -> bool {
        if self.kept == Some(link) {
            return true;
        }
        if self.steps.is_power_of_two() || self.kept.is_none() {
            self.kept = Some(link);
        }
        self.steps += 1;
        false
    }
}
